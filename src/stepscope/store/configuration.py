"""Changes of the configuration of a running job: requests, and the decisions on them.

    configuration-requests/<number>.json      written by a command or the web UI
    configuration-decisions/<number>.json     written by the first monitor that decides

The numbers order the changes, and the first to write a number has it. A request contains the
complete new configuration, so that it cannot be applied in part.
"""

from __future__ import annotations

import msgspec

from stepscope.schema import ConfigurationDecision, ConfigurationRequest
from stepscope.store.documents import RunDocuments
from stepscope.store.layout import document_key

CONFIGURATION_REQUESTS = "configuration-requests"
CONFIGURATION_DECISIONS = "configuration-decisions"


class ConfigurationChanges(RunDocuments):
    """Changes of the configuration of one job."""

    def request(self, request: ConfigurationRequest) -> bool:
        """Write a request; False if there is one of this number."""
        key = _key(CONFIGURATION_REQUESTS, request.number)
        return self._store.put_if_absent(key, msgspec.json.encode(request))

    def read_request(self, number: int) -> ConfigurationRequest | None:
        """Read a request; None if there is none."""
        return self._get(_key(CONFIGURATION_REQUESTS, number), ConfigurationRequest)

    def decide(self, number: int, decision: ConfigurationDecision) -> ConfigurationDecision:
        """Decide on a request, unless another node has; returns the decision that holds.

        Raises:
            OSError: the run cannot be written.
        """
        key = _key(CONFIGURATION_DECISIONS, number)
        if self._store.put_if_absent(key, msgspec.json.encode(decision)):
            return decision
        return self.read_decision(number) or decision

    def read_decision(self, number: int) -> ConfigurationDecision | None:
        """Read the decision on a request; None before it."""
        return self._get(_key(CONFIGURATION_DECISIONS, number), ConfigurationDecision)


def _key(kind: str, number: int) -> str:
    return document_key(kind, f"{number:04}")
