"""What a line gets that cannot be read: the thing, the value and the fix, and where the help is."""

from __future__ import annotations

import re
from typing import Any

import typer

from fedkeel.common.errors import did_you_mean

UsageError: Any = typer.BadParameter.__base__  # typer does not export it
# options of earlier versions, and what may have taken their place: the first that the command has
_REPLACED = {
    "--html": ("--page",),
    "--out": ("--picture",),
    "--look-at": ("--pilot-clients",),
    "--points": ("--pilot-points", "--samples"),
    "--samples": ("--pilot-samples",),
    "--constants": ("--advice",),
    "--set": ("--constant",),
    "--values": ("--over",),
}
_FEW = 12  # more options are not listed
_WANTED = {
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
}


def asks_for_help(problem: Any) -> bool:
    """Tell whether this is no mistake: a group of commands that is called alone prints its help."""
    return type(problem).__name__ == "NoArgsIsHelpError"


def explain_usage(problem: Any) -> str:
    """Return the message of an error that typer found in the line."""
    command = problem.ctx.command_path if problem.ctx else "fedkeel"
    parameters = list(problem.ctx.command.params) if problem.ctx else []
    return f"{_reason(problem, parameters)}\nhelp: {command} --help"


def _reason(problem: Any, parameters: list[Any]) -> str:
    message = problem.message.rstrip(".")
    name, parameter = getattr(problem, "option_name", None), getattr(problem, "param", None)
    if name is not None:
        return _wrong_option(name, message, parameters)
    if parameter is not None:
        shown = _name(parameter)
        return f"{shown} {_invalid(problem) if message else f'is missing{_described(shown, parameters)}'}"
    extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message)
    if extra is not None:
        return _extra(extra.group(1), parameters)
    unknown = re.match(r"No such command '(.*?)'", message)
    if unknown is not None:
        known = problem.ctx.command.commands
        return f"there is no command {unknown.group(1)!r}; {did_you_mean(unknown.group(1), known)}"
    return f"{message[0].lower()}{message[1:]}"


def _wrong_option(name: str, message: str, parameters: list[Any]) -> str:
    if message.startswith("No such option"):
        return _unknown_option(name, parameters)
    if message.endswith("does not take a value"):
        return f"{name} takes no value: leave it out"
    missing = message.endswith("requires an argument")
    return f"{name}: {'its value is missing' if missing else message}{_described(name, parameters)}"


def _unknown_option(name: str, parameters: list[Any]) -> str:
    known = [flag for one in parameters for flag in one.opts if flag.startswith("--")]
    if name == "--file":
        return "--file: the experiment's file is an argument: leave the word --file out"
    replaced = next((new for new in _REPLACED.get(name, ()) if new in known), None)
    if replaced is not None:
        return f"{name}: write {replaced}{_described(replaced, parameters)}"
    words = {flag.removeprefix("--"): flag for flag in known}
    hint = did_you_mean(name.lstrip("-"), words)
    near = next((flag for word, flag in words.items() if hint == f"did you mean {word!r}?"), None)
    if near is not None:
        return f"there is no option {name}; did you mean {near}?"
    return f"there is no option {name}" + (f"; known: {', '.join(known)}" if len(known) <= _FEW else "")


def _described(name: str, parameters: list[Any]) -> str:
    helps = [one.help for one in parameters if name in (_name(one), *one.opts) and one.help]
    return f": {helps[0][0].lower()}{helps[0][1:].rstrip('.')}" if helps else ""


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return str(parameter.opts[0])
    return str(parameter.metavar or parameter.name).upper()


def _invalid(problem: Any) -> str:
    """Say what typer says of a value in the words of all other messages: the value, then what to give."""
    wrong = _first_error(problem.__cause__) or _from_click(problem.message.rstrip("."))
    if wrong is None:
        return f": {problem.message.rstrip('.')}"
    value, kind, limits = wrong["input"] or "''", wrong["type"], wrong.get("ctx", {})
    if kind in _WANTED:
        return f"{value}: give {_WANTED[kind].format(**limits)}"
    listed = re.fullmatch(r".* is not one of (.*)", wrong["msg"].rstrip("."), re.DOTALL)
    if listed is not None:
        known = re.findall(r"'([^']*)'", listed.group(1))
        return f"{value}: {did_you_mean(str(value), known)}"
    return f"{value}: {wrong['msg']}"


def _first_error(cause: Any) -> Any:
    """Return what pydantic, which newer versions of typer read values with, says first."""
    return cause.errors()[0] if hasattr(cause, "errors") else None


def _from_click(message: str) -> dict[str, Any] | None:
    """Return what Click, which older versions of typer read values with, says, in pydantic's terms."""
    kinds = {"integer": "int_parsing", "float": "float_parsing"}
    if unread := re.fullmatch(r"'(.*)' is not a valid (integer|float)( range)?", message, re.DOTALL):
        return {"input": unread[1], "type": kinds[unread[2]], "msg": message}
    if outside := re.fullmatch(r"(\S+) is not in the range (?:(\S+)<=)?x(?:>=(\S+)|<=(\S+))?", message):
        value, below, least, most = outside.groups()
        least = least or below
        if least is not None and float(value) < float(least):
            return {"input": value, "type": "greater_than_equal", "ctx": {"ge": least}}
        return {"input": value, "type": "less_than_equal", "ctx": {"le": most}}
    if listed := re.match(r"'(.*?)' is not one of ", message, re.DOTALL):
        return {"input": listed[1], "type": "enum", "msg": message}
    return None


def _extra(words: str, parameters: list[Any]) -> str:
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    if not arguments:
        return f"{words}: this command takes no argument: leave it out"
    (argument,) = arguments
    text = f"{words}: one argument too many: there is only {_name(argument)}"
    known = {flag for one in parameters for flag in one.opts}
    if "--over" in known:
        return f"{text}; what varies is given with --over"
    if "--method" in known and argument.name == "file":
        return f"{text}; a method is named with --method, once for each"
    return text
