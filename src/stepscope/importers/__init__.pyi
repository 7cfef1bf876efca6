from .content import (
    DEBUGGER_TENSORS as DEBUGGER_TENSORS,
    EXECUTION_TRACE as EXECUTION_TRACE,
    FLIGHT_RECORDER as FLIGHT_RECORDER,
    MEMORY_TIMELINE as MEMORY_TIMELINE,
    NCCL_INSPECTOR as NCCL_INSPECTOR,
    STAGE_OPERATIONS as STAGE_OPERATIONS,
    TENSORBOARD as TENSORBOARD,
    Copied as Copied,
    Imported as Imported,
    ProgressCallback as ProgressCallback,
    Recorded as Recorded,
    Refused as Refused,
    Result as Result,
)
from .flight_recorder import (
    FlightDump as FlightDump,
    RecordedCall as RecordedCall,
    load_plain as load_plain,
    make_call_columns as make_call_columns,
    make_called_collective as make_called_collective,
    parse_flight_dump as parse_flight_dump,
)
from .kineto.pool import start_worker as start_worker
from .registry import (
    Importer as Importer,
    find_files as find_files,
    import_files as import_files,
    installed_importers as installed_importers,
    trace_decoder as trace_decoder,
)
