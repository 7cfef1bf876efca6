from .check import (
    UNREADABLE_INPUTS as UNREADABLE_INPUTS,
    RuleReport as RuleReport,
    check_rules as check_rules,
    choose_rules as choose_rules,
    describe_rules as describe_rules,
    rule_names as rule_names,
    withhold_damaged as withhold_damaged,
)
from .feed import DEFAULT_SCAN_NS as DEFAULT_SCAN_NS, RuleFeed as RuleFeed
from .learning import (
    RULES_DOCUMENT as RULES_DOCUMENT,
    find_tensor_issues as find_tensor_issues,
    judge_learning as judge_learning,
    make_verdict as make_verdict,
    progress_of as progress_of,
    recorded_rules as recorded_rules,
    refuse_advice as refuse_advice,
)
from .selection import (
    change_rules as change_rules,
    list_rules as list_rules,
    name_rules as name_rules,
)
