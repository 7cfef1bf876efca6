from .content import (
    Copied as Copied,
    Format as Format,
    Imported as Imported,
    ProgressCallback as ProgressCallback,
    Recorded as Recorded,
    Refused as Refused,
    Result as Result,
    read_content as read_content,
    read_head as read_head,
)
from .flight_recorder import (
    FlightDump as FlightDump,
    RecordedCall as RecordedCall,
    make_call_columns as make_call_columns,
    make_called_collective as make_called_collective,
    parse_flight_dump as parse_flight_dump,
)
from .kineto import TRACE as TRACE
from .plain_pickle import load_plain as load_plain
from .registry import (
    Importer as Importer,
    find_files as find_files,
    import_files as import_files,
    installed_importers as installed_importers,
    list_formats as list_formats,
    trace_decoder as trace_decoder,
)
