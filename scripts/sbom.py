"""Print the SBOM of an installed distribution as CycloneDX 1.5 JSON.

Components are the distribution's dependencies as they are installed in the environment of the
Python that runs this, found by their metadata; only the standard library is needed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NAME = re.compile(r"[A-Za-z0-9._-]+")
ADDRESS = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # the name space of URLs


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(name: str) -> list[str]:
    """The names of what a distribution needs without extras, where it is installed here."""
    found = set()
    for text in importlib.metadata.requires(name) or []:
        stated, _, marker = text.partition(";")
        matched = NAME.match(stated.strip())
        if matched is None or "extra" in marker:
            continue
        try:
            importlib.metadata.version(matched[0])
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system or another version of Python
        found.add(normalised(matched[0]))
    return sorted(found)


def closure(name: str) -> dict[str, list[str]]:
    """For the distribution and all that it needs, directly or not, what each one needs."""
    needs: dict[str, list[str]] = {}
    left = [normalised(name)]
    while left:
        one = left.pop()
        if one not in needs:
            needs[one] = required(one)
            left += needs[one]
    return dict(sorted(needs.items()))


def component(name: str, *, kind: str = "library") -> dict[str, Any]:
    about = importlib.metadata.metadata(name)
    version = importlib.metadata.version(name)
    address = f"pkg:pypi/{name}@{version}"
    described: dict[str, Any] = {
        "type": kind,
        "bom-ref": address,
        "name": name,
        "version": version,
        "purl": address,
    }
    if "License-Expression" in about:
        described["licenses"] = [{"expression": about["License-Expression"]}]
    elif "License" in about and "\n" not in about["License"].strip():  # else it is the whole text
        described["licenses"] = [{"license": {"name": about["License"].strip()}}]
    return described


def sbom(name: str, files: list[Path]) -> dict[str, Any]:
    """The whole document; its time is SOURCE_DATE_EPOCH, its number follows from the files."""
    needs = closure(name)
    parts = {one: component(one) for one in needs}
    main = component(normalised(name), kind="application")
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}
    main["externalReferences"] = [
        {
            "type": "distribution",
            "url": file,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for file, digest in digests.items()
    ]
    when = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(ADDRESS, json.dumps(digests))}",
        "version": 1,
        "metadata": {
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": main,
        },
        "components": [part for one, part in parts.items() if one != normalised(name)],
        "dependencies": [
            {"ref": parts[one]["bom-ref"], "dependsOn": [parts[other]["bom-ref"] for other in own]}
            for one, own in needs.items()
        ],
    }


if __name__ == "__main__":
    print(json.dumps(sbom(sys.argv[1], [Path(one) for one in sys.argv[2:]]), indent=2))
