"""Settings of experiments as JSON, and changes of them: nested dataclasses, whose parts have dotted names."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from dsvnp.naming import lookup, unknown
from dsvnp.paper.experiment import Experiment

T = TypeVar("T")
E = TypeVar("E", bound=Experiment)


def as_json(settings: Any) -> dict[str, Any]:
    """A dataclass as JSON would give it back."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    return plain


def rebuild(kind: type[T], config: Mapping[str, Any]) -> T:
    """Make a dataclass of what JSON holds of it; a setting that came later has its default."""
    hints = get_type_hints(kind)
    if absent := sorted(config.keys() - hints.keys()):
        raise ValueError(f"{kind.__name__} has no setting {absent[0]}; another version wrote that run")
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(hint := hints[name], type) and is_dataclass(hint):
            found[name] = rebuild(hint, _named(value, name))
        else:
            found[name] = tuples(value)
            if not _is_a(found[name], hint):
                raise ValueError(f"{kind.__name__} has a setting {name} of another kind: {ascii(value)[:80]}")
    return kind(**found)


def changed(settings: T, changes: Mapping[str, Any], prefix: str = "") -> T:
    """A copy with some settings changed: {"num_steps": 10, "wide.learning_rate": 1e-3, "strong": {"width": 8}}."""
    assert is_dataclass(settings) and not isinstance(settings, type)
    hints, known = get_type_hints(type(settings)), {field.name: field for field in fields(settings)}
    new: dict[str, Any] = {}
    for name, value in changes.items():
        head, dot, rest = name.partition(".")
        if head not in known:
            raise ValueError(unknown(prefix + head, [prefix + each for each in known], "setting"))
        old, hint = new.get(head, getattr(settings, head)), hints[head]
        inner = {rest: value} if dot else value
        if is_dataclass(old) and not isinstance(value, type(old)):
            new[head] = changed(old, _named(inner, prefix + head), f"{prefix}{head}.")
        elif isinstance(old, dict):
            allowed = known[head].metadata.get("of")  # the dataclass of whose settings it holds some
            _named(inner, prefix + head)
            checked = changed(allowed(), inner, f"{prefix}{head}.") if allowed else None
            new[head] = old | ({key: getattr(checked, key) for key in inner} if allowed else inner)
        else:
            new[head] = _checked(prefix + name, value, hint)
    return replace(settings, **new)


def _named(value: Any, name: str) -> Mapping[str, Any]:
    """Settings by name, or an error."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} takes settings by name, as in {name}.NAME=VALUE, got {value!r}")
    return value


def _checked(name: str, value: Any, hint: Any) -> Any:
    """A value as a setting holds it: tuples for lists, and for a text with commas where several are expected."""
    several = get_origin(hint) is tuple and get_args(hint)[0] is str
    value = tuple(value.split(",")) if several and isinstance(value, str) else tuples(value)
    if not _is_a(value, hint):
        expected = str(hint) if get_args(hint) else getattr(hint, "__name__", str(hint))
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    return value


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value is of a setting's type; of a type that JSON does not have, nothing is known."""
    if isinstance(hint, UnionType):
        return any(_is_a(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_is_a(one, get_args(hint)[0]) for one in value)
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (bool, str, type(None)) else True


def tuples(data: Any) -> Any:
    """Turn the lists that JSON gives back into the tuples that settings are made of."""
    return tuple(tuples(value) for value in data) if isinstance(data, list) else data


def joined(kind: type[E], configs: Sequence[Mapping[str, Any]]) -> E:
    """The experiment of the first settings, with what all of them have of those that may be added to.

    A setting that came later than the first run is that of the next one which has it.
    """
    joint = {name: value for config in configs[::-1] for name, value in config.items()}
    for name in kind.extendable:
        # A run that is older than a setting has its default, as JSON writes it.
        default = json.loads(json.dumps(getattr(kind, name)))
        values = [config.get(name, default) for config in configs]
        joint[name] = _union(values, default) if isinstance(default, list) else max(values)
    # Seeds are a span: from the first of any run to the last.
    spans = [(config.get("first_seed", 0), config["num_seeds"]) for config in configs]
    joint["first_seed"] = min(first for first, _ in spans)
    joint["num_seeds"] = max(first + number for first, number in spans) - joint["first_seed"]
    return rebuild(kind, joint)


def _union(values: Sequence[list[Any]], default: list[Any]) -> list[Any]:
    """All that lists hold, in the order of a single run."""
    found = dict.fromkeys(item for value in values for item in value)
    return sorted(found, key=[*default, *found].index)


def make_experiment(kind: type[E], preset: str, **changes: Any) -> E:
    """Make an experiment of a preset with some settings changed, see `changed`."""
    return changed(lookup(preset, kind.presets(), "preset"), changes)
