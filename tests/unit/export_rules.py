"""What RO-Crate 1.2 and in-toto's test-result v0.1 ask of a document, as sentences that it breaks.

Written from the specifications, and without a look at the code that makes the documents.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CRATE, STATEMENT = "ro-crate-metadata.json", "test-result.statement.json"
Document = dict[str, Any]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, dict):
        yield value["@id"]


def crate_faults(folder: Path, document: Document) -> list[str]:
    """Return what breaks RO-Crate 1.2: root data entity, data entities, metadata, JSON-LD."""
    return [
        *_graph_faults(document),
        *_root_faults(document),
        *_action_faults(document),
        *_file_faults(folder, document),
    ]


def _graph_faults(document: Document) -> Iterator[str]:
    graph = document["@graph"]
    ids = [entity.get("@id") for entity in graph]
    if document["@context"] != "https://w3id.org/ro/crate/1.2/context":
        yield "context"
    if None in ids or len(set(ids)) != len(ids) or not all(e.get("@type") for e in graph):
        yield "every entity has an @id of its own and a @type"
    for entity in graph:
        for key, value in entity.items():
            items = value if isinstance(value, list) else [value]
            if any(isinstance(item, dict) and set(item) != {"@id"} for item in items):
                yield f"{entity['@id']}.{key} nests an entity: the graph is not flattened"
                continue
            for target in references(value) if not key.startswith("@") else ():
                if target not in ids and not target.startswith(("https://", "http://")):
                    yield f"{entity['@id']}.{key} refers to {target}, which is not described"


def _root_faults(document: Document) -> Iterator[str]:
    entities = {entity["@id"]: entity for entity in document["@graph"]}
    descriptor = entities["ro-crate-metadata.json"]
    if descriptor["@type"] != "CreativeWork":
        yield "descriptor type"
    if descriptor["conformsTo"] != {"@id": "https://w3id.org/ro/crate/1.2"}:
        yield "descriptor conformsTo"
    root = entities[descriptor["about"]["@id"]]
    if (root["@id"], root["@type"]) != ("./", "Dataset"):
        yield "root"
    for name in ("name", "description", "datePublished", "license"):
        if not isinstance(root.get(name), str) or not root[name].strip():
            yield f"root lacks {name}"
    if not re.match(r"\d{4}-\d\d-\d\dT", root.get("datePublished", "")):
        yield "datePublished is no ISO 8601 time"
    if unreached := sorted(entities.keys() - _reached(entities)):
        yield f"not reachable from the root: {unreached}"


def _reached(entities: dict[str, Document]) -> set[str]:
    reached: set[str] = set()
    todo = ["./", "ro-crate-metadata.json"]
    while todo:
        here = todo.pop()
        if here in entities and here not in reached:
            reached.add(here)
            links = [value for value in entities[here].values() if isinstance(value, dict | list)]
            todo += [target for value in links for target in references(value)]
    return reached


def _action_faults(document: Document) -> Iterator[str]:
    entities = {entity["@id"]: entity for entity in document["@graph"]}
    action = entities["#run"]
    if action["@type"] != "CreateAction" or not {"instrument", "object", "result"} <= action.keys():
        yield "the run is no CreateAction with instrument, object and result"
    if entities[action["instrument"]["@id"]]["@type"] != "SoftwareSourceCode":
        yield "the instrument is no source code"


def _file_faults(folder: Path, document: Document) -> Iterator[str]:
    graph = document["@graph"]
    root = next(entity for entity in graph if entity["@id"] == "./")
    files = {entity["@id"]: entity for entity in graph if entity["@type"] == "File"}
    there = {path.name for path in folder.iterdir()} - {CRATE}
    if files.keys() != there or {*references(root["hasPart"])} != there:
        yield f"described {sorted(files)}, there {sorted(there)}"
    for name, entity in files.items():
        path = folder / name
        if not path.is_file():
            continue
        if entity["sha256"] != sha256(path) or entity["contentSize"] != str(path.stat().st_size):
            yield f"{name}: size or sha256 is not the file's"
        if not re.fullmatch(r"[a-z]+/[a-z0-9.+-]+", entity["encodingFormat"]):
            yield f"{name}: encodingFormat is no media type"
        if not entity["additionalType"] or not entity["name"] or not entity["description"]:
            yield f"{name}: no kind, name or description"


def statement_faults(folder: Path, document: Document) -> Iterator[str]:
    """Yield what breaks in-toto's Statement v1, ResourceDescriptor and test-result v0.1."""
    if document.keys() != {"_type", "subject", "predicateType", "predicate"}:
        yield "fields of the statement"
    if document["_type"] != "https://in-toto.io/Statement/v1":
        yield "_type"
    if document["predicateType"] != "https://in-toto.io/attestation/test-result/v0.1":
        yield "predicateType"
    subject = {entry["name"]: entry["digest"] for entry in document["subject"]}
    there = {p.name: {"sha256": sha256(p)} for p in folder.iterdir()}
    if len(subject) != len(document["subject"]) or subject != {
        name: digest for name, digest in there.items() if name not in (CRATE, STATEMENT)
    }:
        yield "subject: each file once, with its digest"
    predicate = document["predicate"]
    if predicate["result"] not in ("PASSED", "WARNED", "FAILED"):
        yield "result"
    for descriptor in predicate["configuration"]:
        if not {"uri", "digest", "content"} & descriptor.keys():
            yield "a resource descriptor needs uri, digest or content"
    tests = [predicate[key] for key in ("passedTests", "warnedTests", "failedTests")]
    names = [name for found in tests for name in found]
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        yield "every test once, by name"
    worst = [
        word for word, found in zip(("PASSED", "WARNED", "FAILED"), tests, strict=True) if found
    ]
    if predicate["result"] != worst[-1]:
        yield f"result {predicate['result']}, the tests say {worst[-1]}"
