from __future__ import annotations

from stepscope.rule_feed.check import (
    RULES_DOCUMENT,
    RuleReport,
    check_rules,
    choose_rules,
    describe_rules,
    progress_of,
    recorded_rules,
    rule_names,
)
from stepscope.rule_feed.damage import UNREADABLE_INPUTS, withhold_damaged
from stepscope.rule_feed.feed import DEFAULT_SCAN_NS, RuleFeed
from stepscope.rule_feed.selection import change_rules, list_rules, name_rules

__all__ = [
    "DEFAULT_SCAN_NS",
    "RULES_DOCUMENT",
    "UNREADABLE_INPUTS",
    "RuleFeed",
    "RuleReport",
    "change_rules",
    "check_rules",
    "choose_rules",
    "describe_rules",
    "list_rules",
    "name_rules",
    "progress_of",
    "recorded_rules",
    "rule_names",
    "withhold_damaged",
]
