from .actions import make_notifier as make_notifier
from .config import (
    ActionConfig as ActionConfig,
    WatchConfig as WatchConfig,
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
    measure_pace as measure_pace,
)
from .reading_budget import ReadingBudget as ReadingBudget
from .stop_request import (
    STOP_REQUEST_FILE as STOP_REQUEST_FILE,
    StopRequest as StopRequest,
    read_stop_request as read_stop_request,
    write_stop_request as write_stop_request,
)
from .user import user_name as user_name
