from ._scan import scanner_state as scanner_state
from .arguments import OtherKind as OtherKind
from .blocks import Frame as Frame, inflated as inflated, read_text as read_text
from .columns import Chunk as Chunk, Interner as Interner, codes_of as codes_of
from .describe import Header as Header, Identity as Identity
from .gather import Gathered as Gathered
from .importer import (
    TRACE as TRACE,
    KinetoImporter as KinetoImporter,
    identify_files as identify_files,
)
from .reading import Note as Note, Progress as Progress, Reading as Reading, Unpaired as Unpaired
from .trace_file import import_trace as import_trace, store_reading as store_reading
