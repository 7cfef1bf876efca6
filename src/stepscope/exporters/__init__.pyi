from .chrome import READERS as READERS, Exported as Exported, export_chrome as export_chrome
from .prometheus import render_metrics as render_metrics
from .python_profile import (
    FunctionTable as FunctionTable,
    render_python_profile as render_python_profile,
)
from .registry import (
    Exporter as Exporter,
    ExportOptions as ExportOptions,
    Written as Written,
    choose_live_output as choose_live_output,
    export as export,
    list_exporters as list_exporters,
    load_exporter as load_exporter,
    spell_option as spell_option,
)
from .tensorboard import ExportedEvents as ExportedEvents, export_tensorboard as export_tensorboard
from .timeline import (
    GPU_BELOW_RATIO as GPU_BELOW_RATIO,
    SOURCES as SOURCES,
    ExportedTimeline as ExportedTimeline,
    TimelineContent as TimelineContent,
    choose_content as choose_content,
    export_timeline as export_timeline,
    find_step_range as find_step_range,
)
from .view_tables import (
    MAX_LISTED as MAX_LISTED,
    ViewTable as ViewTable,
    choose_table as choose_table,
    describe_tables as describe_tables,
    tabulate as tabulate,
    write_csv as write_csv,
    write_report_workbook as write_report_workbook,
    write_workbook as write_workbook,
)
