"""Compiled functions say which records they are given; mypy reads their fields."""

import ast
from pathlib import Path

import capplan.simulator

TYPES = {"state": "State", "replica": "Replica", "request": "Request"}
FILES = sorted(Path(capplan.simulator.__file__).parent.rglob("*.py"))


def compiled_functions(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "compiled(" in decorators or "inlined(" in decorators:
                yield node


def test_states_and_records_are_annotated_where_compiled_code_takes_them():
    bare = [
        f"{path.name}: {function.name}({argument.arg})"
        for path in FILES
        for function in compiled_functions(path)
        for argument in function.args.args
        if argument.arg in TYPES and argument.annotation is None
    ]

    assert bare == []
