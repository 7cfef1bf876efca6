from .evidence import Origin as Origin, find_origin as find_origin
from .ids import ROW_ID as ROW_ID, make_id as make_id, with_ids as with_ids
from .sources import LIST_SEPARATOR as LIST_SEPARATOR, make_payload as make_payload
from .sql import (
    QueryColumn as QueryColumn,
    QueryLimits as QueryLimits,
    QueryResult as QueryResult,
    query_rows as query_rows,
    tabulate_result as tabulate_result,
    write_arrow as write_arrow,
)
