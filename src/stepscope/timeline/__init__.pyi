from .content import (
    Content as Content,
    TrackDescription as TrackDescription,
    load_track_descriptions as load_track_descriptions,
)
from .counters import (
    ESTIMATES as ESTIMATES,
    MEMORY_COLUMNS as MEMORY_COLUMNS,
    Bins as Bins,
    load_sampled_bins as load_sampled_bins,
)
from .critical_path import get_path_timeline as get_path_timeline
from .event import (
    EventDetails as EventDetails,
    find_event as find_event,
    find_piece as find_piece,
    find_span as find_span,
)
from .kinds import (
    SliceKind as SliceKind,
    TrackSource as TrackSource,
    classify_slice as classify_slice,
)
from .search import TimelineEvent as TimelineEvent, search_events as search_events
from .spans import (
    IS_AGGREGATE as IS_AGGREGATE,
    IS_SLICE as IS_SLICE,
    SPAN_NAME as SPAN_NAME,
    SlicePart as SlicePart,
)
from .trace import get_timelines as get_timelines
from .tracks import (
    PATH as PATH,
    TrackId as TrackId,
    find_outlier_steps as find_outlier_steps,
    find_steps_of_run as find_steps_of_run,
    parse_track as parse_track,
    parse_tracks as parse_tracks,
    track_id as track_id,
)
from .window import (
    build_call_tree as build_call_tree,
    compute_busy_ratios as compute_busy_ratios,
    is_stream as is_stream,
    read_parts as read_parts,
    read_window as read_window,
    split_by_line as split_by_line,
    sum_tracks as sum_tracks,
)
