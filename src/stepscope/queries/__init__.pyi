from .evidence import (
    ROW_ID as ROW_ID,
    Origin as Origin,
    find_origin as find_origin,
    make_id as make_id,
    make_payload as make_payload,
    with_ids as with_ids,
)
from .sql import (
    QueryColumn as QueryColumn,
    QueryLimits as QueryLimits,
    QueryResult as QueryResult,
    query_arrow as query_arrow,
    query_rows as query_rows,
    tabulate_result as tabulate_result,
)
