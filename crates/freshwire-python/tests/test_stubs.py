"""The stubs name what there is."""

import ast
from pathlib import Path

import pytest

import freshwire

PACKAGE = Path(freshwire.__file__).parent
MODULES = {"__init__": freshwire, "choice": freshwire.choice, "a1": freshwire.a1}


def public(names):
    """Drop names that begin with an underscore."""
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("stub", MODULES)
def test_stubs_and_modules_have_the_same_names(stub):
    tree = ast.parse((PACKAGE / f"{stub}.pyi").read_text())
    module = MODULES[stub]
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    submodules = {"a1", "choice"} if stub == "__init__" else set()
    assert public(set(classes) | functions | submodules) == public(dir(module))
    for name, node in classes.items():
        if name.startswith("_"):
            continue
        kind = getattr(module, name)
        inherited = set(dir(Exception)) if issubclass(kind, Exception) else set()
        stubbed = set()
        for item in node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                stubbed.add(item.name)
            elif isinstance(item, ast.AnnAssign):
                stubbed.add(item.target.id)
            elif isinstance(item, ast.Assign):
                stubbed.add(item.targets[0].id)
        assert public(stubbed) == public(set(dir(kind)) - inherited), name


def test_the_package_is_marked_as_typed():
    assert (PACKAGE / "py.typed").exists()


def test_everything_public_is_documented():
    for module in MODULES.values():
        for name in public(dir(module)):
            assert getattr(module, name).__doc__, name
