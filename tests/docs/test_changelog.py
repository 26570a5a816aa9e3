"""The version of the package, the newest section of the changelog and the tag of a release agree."""

import re
import subprocess
import tomllib
from pathlib import Path


def test_version_changelog_and_tag_agree(repository: Path) -> None:
    version = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"]
    sections = re.findall(r"^## (\S+)", (repository / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == version
    tags = subprocess.run(
        ["git", "tag", "--points-at", "HEAD", "v*"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(tags.stdout.split()) <= {f"v{version}"}
