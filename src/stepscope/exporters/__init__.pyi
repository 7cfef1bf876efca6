from .chrome import Exported as Exported, export_chrome as export_chrome
from .timeline import ExportedTimeline as ExportedTimeline, export_timeline as export_timeline
