from .add_up import report_fleet as report_fleet
from .payload import (
    GROUPINGS as GROUPINGS,
    Amount as Amount,
    Fleet as Fleet,
    FleetCause as FleetCause,
    FleetClass as FleetClass,
    FleetFix as FleetFix,
    FleetGroup as FleetGroup,
    FleetJob as FleetJob,
    FleetSelection as FleetSelection,
    Grouping as Grouping,
    SkippedRun as SkippedRun,
    parse_grouping as parse_grouping,
    parse_time as parse_time,
    select_runs as select_runs,
)
from .reading import FleetReading as FleetReading, read_fleet as read_fleet
