"""Finds a policy by its name: one way and one error text for all kinds of policy."""

import importlib
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from stageline.engine.policies.users_key import described
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError

USERS_CLASS = "package.module:Class"


class Policy:
    """What every policy says about itself: the settings that it can't do without."""

    needs_prefix_cache: ClassVar[bool] = False
    needs_tpot_slo: ClassVar[bool] = False


P = TypeVar("P", bound=Policy)


class Registry(Generic[P]):
    """The policies of one kind by name.

    `setting` is their field of `Scheduling` and, with two dashes before it, its flag. `users_methods` are the
    methods that a user's own class must have; without any, only built-in policies can be named.
    """

    def __init__(self, setting: str, built_in: Mapping[str, type[P]], users_methods: tuple[str, ...] = ()) -> None:
        self.setting = setting
        self.built_in = built_in
        self.users_methods = users_methods

    @property
    def choices(self) -> str:
        """What may be given, for messages and help: the default is marked."""
        default = getattr(Scheduling(), self.setting)
        names = [f"{name} (default)" if name == default else name for name in self.built_in]
        return ", ".join([*names, f"or your own {USERS_CLASS}"] if self.users_methods else names)

    def find(self, scheduling: Scheduling) -> type[P]:
        """The class that the settings name. Imports a user's class.

        Raises UsageError for an unknown name, for a class that can't be used, and when a setting that the policy needs
        is missing.
        """
        name = self._name(scheduling)
        if name in self.built_in:
            found = self.built_in[name]
        elif self._is_users(name):
            found = self._import(name)
        else:
            raise UsageError(f"--{self.setting} {name}: there is no such policy; known: {self.choices}")
        if getattr(found, "needs_prefix_cache", False) and not scheduling.prefix_cache:
            raise UsageError(f"--{self.setting} {name} needs a prefix cache: add --prefix-cache")
        if getattr(found, "needs_tpot_slo", False) and scheduling.tpot_slo_ns is None:
            raise UsageError(f"--{self.setting} {name} needs a TPOT to keep: give --slo tpot=50ms")
        return found

    def make(self, scheduling: Scheduling) -> P:
        """An instance of a policy that is constructed without arguments. Raises what `find` raises."""
        found, name = self.find(scheduling), self._name(scheduling)
        try:
            return found()
        except TypeError as e:
            raise UsageError(f"--{self.setting} {name}: {e}; the class must take no arguments") from e
        except (Exception, SystemExit) as e:
            raise UsageError(f"--{self.setting} {name}: constructing it failed: {described(e)}") from e

    def check(self, scheduling: Scheduling) -> None:
        """Raises what `find` would raise. A user's class is not imported: it may exist on the router's host only."""
        if not self._is_users(self._name(scheduling)):
            self.find(scheduling)

    def _name(self, scheduling: Scheduling) -> str:
        return str(getattr(scheduling, self.setting))

    def _is_users(self, name: str) -> bool:
        return bool(self.users_methods) and ":" in name

    def _import(self, name: str) -> type[P]:
        """A user's class. It need not derive from the base class; only its methods matter."""
        module, _, attribute = name.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, TypeError, ValueError) as e:
            raise UsageError(f"--{self.setting} {name}: {e}; the class must be importable") from e
        except (Exception, SystemExit) as e:
            raise UsageError(f"--{self.setting} {name}: importing it failed: {described(e)}") from e
        methods = self.users_methods
        if not (isinstance(found, type) and all(callable(getattr(found, m, None)) for m in methods)):
            raise UsageError(f"--{self.setting} {name}: not a class with the method {', '.join(methods)}")
        return found
