from .candidates import (
    Candidate as Candidate,
    choose_candidates as choose_candidates,
    parse_changes as parse_changes,
)
from .processes import find_real_directories as find_real_directories
from .schedule import (
    MIN_PAIRS as MIN_PAIRS,
    JobSource as JobSource,
    Schedule as Schedule,
    plan_schedule as plan_schedule,
)
from .session import TrialSession as TrialSession
