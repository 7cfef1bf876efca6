from .sql import (
    QueryColumn as QueryColumn,
    QueryLimits as QueryLimits,
    QueryResult as QueryResult,
    query_arrow as query_arrow,
    query_rows as query_rows,
    tabulate_result as tabulate_result,
)
