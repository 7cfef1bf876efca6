"""Examples for clusters: valid manifests, and commands that stepscope accepts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli import root
from tests.support.suggested_commands import parse_words

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"
MANIFESTS = sorted((CLUSTER / "kubernetes").glob("*.yaml"))


def load(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def instructions(name: str) -> list[str]:
    """Return the arguments of an instruction of the container file."""
    text = (CLUSTER / "Containerfile").read_text().replace("\\\n", "")
    return re.findall(rf"^{name} (.+)$", text, re.M)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_are_valid(path: Path) -> None:
    validation = pytest.importorskip("kubernetes_validate", reason="it is not installed")
    for manifest in load(path):
        validation.validate(manifest, "1.30", strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_containers_run_commands_of_stepscope(path: Path) -> None:
    for manifest in load(path):
        if manifest["kind"] == "Service":
            assert manifest["metadata"]["name"] in {"train", "stepscope"}
            continue
        pod = manifest["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        words = container.get("command") or json.loads(instructions("ENTRYPOINT")[0])
        assert words[0] == "stepscope"
        context = parse_words([*words[1:], *container.get("args", [])])
        if manifest["kind"] == "Job":
            assert context.params["command"][0] == "torchrun"
            assert pod["subdomain"] == load(path)[0]["metadata"]["name"]
            continue
        assert context.params["port"] == container["ports"][0]["containerPort"]
        (user,) = instructions("USER")
        assert pod["securityContext"]["runAsUser"] == int(user) > 0


def test_the_container_serves_the_page_and_is_not_root() -> None:
    (entry,), (words,) = instructions("ENTRYPOINT"), instructions("CMD")
    assert json.loads(entry) == [root.make_context("stepscope", ["ui"]).info_name]
    context = parse_words(json.loads(words))
    assert context.command.name == "ui"
    assert instructions("EXPOSE") == [str(context.params["port"])]
    (user,) = instructions("USER")
    assert any(f"useradd --uid {user} " in line for line in instructions("RUN"))


def test_the_batch_script_is_a_script() -> None:
    script = CLUSTER / "train.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    (command,) = re.findall(r"^srun stepscope (.+)$", script.read_text(), re.M)
    assert parse_words(command.replace('"', "").split()).params["command"] == ("$@",)
