from .__main__ import import_watch as import_watch, watch_job as watch_job
from .actions import make_notifier as make_notifier
from .config import (
    STOP_REQUEST_FILE as STOP_REQUEST_FILE,
    ActionConfig as ActionConfig,
    ExportConfig as ExportConfig,
    ReadingBudget as ReadingBudget,
    StopRequest as StopRequest,
    WatchConfig as WatchConfig,
    read_stop_request as read_stop_request,
    user_name as user_name,
    write_stop_request as write_stop_request,
)
from .configuring import (
    ConfigurationEdit as ConfigurationEdit,
    read_decision as read_decision,
    request_configuration as request_configuration,
)
from .follower import Pause as Pause, follow_records as follow_records
from .live import (
    LiveView as LiveView,
    Observer as Observer,
    Pace as Pace,
    RecentCurves as RecentCurves,
    measure_pace as measure_pace,
)
