"""The stubs name what there is, with the arguments that it takes."""

import ast
import functools
import inspect
import socket
from pathlib import Path

import pytest

import freshwire

PACKAGE = Path(freshwire.__file__).parent
MODULES = {"__init__": freshwire, "choice": freshwire.choice, "a1": freshwire.a1, "asgi": freshwire.asgi}
CONSTRUCTORS = ("__new__", "__init__")


def public(names):
    """Drop names that begin with an underscore."""
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("stub", MODULES)
def test_stubs_and_modules_have_the_same_names(stub):
    tree = ast.parse((PACKAGE / f"{stub}.pyi").read_text())
    module = MODULES[stub]
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    submodules = {"a1", "asgi", "choice"} if stub == "__init__" else set()
    imported = {"WebSocket"} if stub == "asgi" else set()
    assert public(set(classes) | functions | submodules) == public(dir(module)) - imported
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


def typed_dicts():
    """Find the keyword arguments that several functions share."""
    found = {}
    for stub in MODULES:
        for node in ast.parse((PACKAGE / f"{stub}.pyi").read_text()).body:
            if isinstance(node, ast.ClassDef) and any("TypedDict" in ast.unparse(base) for base in node.bases):
                found[node.name] = [item.target.id for item in node.body]
    return found


def stubbed(arguments, is_bound, names, module):
    """List a stub's arguments: name, whether it is given by keyword alone, and the default; None if there is none."""
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    listed = [(argument.arg, False, default) for argument, default in zip(positional, defaults)][is_bound:]
    listed += [(argument.arg, True, default) for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    namespace = {**vars(freshwire), **vars(module), "_socket": socket}
    listed = [(*rest, None if default is None else (eval(ast.unparse(default), namespace),)) for *rest, default in listed]
    if arguments.kwarg:
        annotation = ast.unparse(arguments.kwarg.annotation)
        listed += [(name, True, (...,)) for name in names[annotation.removeprefix("Unpack[").removesuffix("]")]]
    return listed


def present(function):
    """List the arguments that `help` shows."""
    listed = []
    for argument in inspect.signature(function).parameters.values():
        has_default = argument.default is not argument.empty
        listed.append((argument.name, argument.kind, (argument.default,) if has_default else None))
    return listed


def same(function, arguments, is_bound, names, module):
    """Compare a stub with what `help` shows."""
    wanted, found = stubbed(arguments, is_bound, names, module), present(function)
    if found and found[-1][1] is inspect.Parameter.VAR_KEYWORD:
        # Those of another function, which its documentation names.
        assert arguments.kwarg and found.pop()[0] == arguments.kwarg.arg
        wanted = wanted[: len(found)]
    assert [name for name, *_ in wanted] == [name for name, *_ in found]
    for (name, is_keyword, default), (_, kind, shown) in zip(wanted, found):
        assert is_keyword == (kind is inspect.Parameter.KEYWORD_ONLY), name
        assert (default is None) == (shown is None), name
        if default is not None and ... not in (*default, *shown):
            assert default == shown, name
    return len(found)


@pytest.mark.parametrize("stub", MODULES)
def test_stubs_and_help_have_the_same_arguments(stub):
    tree = ast.parse((PACKAGE / f"{stub}.pyi").read_text())
    names, compared = typed_dicts(), 0
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            compared += same(getattr(MODULES[stub], node.name), node.args, 0, names, MODULES[stub])
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        kind = getattr(MODULES[stub], node.name)
        for item in node.body:
            if not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            decorators = [ast.unparse(decorator) for decorator in item.decorator_list]
            if "property" in decorators or item.name.startswith("__") and item.name not in CONSTRUCTORS:
                continue
            if item.name in CONSTRUCTORS:
                compared += same(kind, item.args, 1, names, MODULES[stub])
            else:
                # Of the class: what is no class method or static one has `self`.
                is_of_class = "classmethod" in decorators or "staticmethod" in decorators
                found = getattr(kind, item.name)
                is_native = not inspect.isfunction(found) and not inspect.ismethod(found)
                signature_has_self = not is_of_class and (not is_native or "self" in inspect.signature(found).parameters)
                is_bound = 0 if "staticmethod" in decorators else 1
                if signature_has_self:
                    found = functools.partial(found, None)
                compared += same(found, item.args, is_bound, names, MODULES[stub])
    assert compared > (2 if stub == "asgi" else 20)


def test_every_option_that_is_shown_is_taken(engine, pair):
    """`help` shows options that the native code looks up by name."""
    values = {"framing": "raw", "carrier": "tcp", "reserve": 10_000, "max_unread": 10_000, "keys": 1, "congestion": "cubic"}
    values |= {"linger": 1.0, "ack_fates": False, "preface": b"x", "queue_target": 0.1, "stall_timeout": 5.0}
    values |= {"departures": False, "network": freshwire.NetworkQos(dscp="CS1")}
    values |= {"kernel_horizon": 1, "kernel_zero_copy": False}
    shown = [name for name, kind, _ in present(freshwire.Sender.add_sink) if kind is inspect.Parameter.KEYWORD_ONLY]
    assert set(values) | {"min_rto", "max_rto"} == set(shown)
    freshwire.Sender(engine).add_sink(pair[0], freshwire.choice.latest(), **values)
    for name in ("min_rto", "max_rto"):
        with pytest.raises(ValueError, match=name):
            freshwire.Sender(engine).add_sink(pair[0], freshwire.choice.latest(), **{name: -1.0})
    for name, value in (("kernel_horizon", 0), ("kernel_zero_copy", True)):
        with pytest.raises(freshwire.CarrierError, match=f"{name} is a setting of the kernel ring: use carrier=\"auto\""):
            freshwire.Sender(engine).add_sink(pair[0], freshwire.choice.latest(), **{name: value})
    shared = typed_dicts()["_SinkOptions"]
    assert sorted(shared) == sorted(set(shown) - {"framing"})
    for name, kind, _ in present(freshwire.a1.Node):
        if kind is inspect.Parameter.KEYWORD_ONLY:
            with pytest.raises((TypeError, ValueError)) as caught:
                freshwire.a1.Node("127.0.0.1:0", **{name: object()})
            assert "no argument" not in str(caught.value), name
    for name, *_ in present(freshwire.a1.Qos):
        with pytest.raises(TypeError) as caught:
            freshwire.a1.Qos(**{name: object()})
        assert "no field" not in str(caught.value), name
    for named in (freshwire.Sender.add_sink, freshwire.a1.Node):
        for name, kind, _ in present(named):
            assert kind is not inspect.Parameter.KEYWORD_ONLY or name in named.__doc__, name
