# ruff: noqa: ARG001, ARG002  # pluggy matches the arguments of a hook by name
"""Plugins that are broken, too new, out of date or ill-behaved: each is reported and none takes the rest down."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pluggy
import pytest

from mzsql.location import (
    HOOKS_VERSION,
    InvalidUrl,
    PluginFailed,
    PluginWarning,
    Registry,
    Serves,
    UnknownScheme,
    hookimpl,
)
from mzsql.location import hookspecs as real_specs
from mzsql.location.mem import MemBlob

SENTINEL = "xyzzyS3NTINEL"


class Plugin:
    """A Blob under one scheme, that says so."""

    def __init__(self, scheme="good"):
        self.scheme = scheme
        self.asked = []

    @hookimpl
    def mzsql_serves(self):
        return [Serves("blob", (self.scheme,), f"{self.scheme}:name")]

    @hookimpl
    def mzsql_open_blob(self, url):
        self.asked.append(url.geturl())
        return MemBlob() if url.scheme == self.scheme else None


def registry_of(*plugins, **more):
    named = [(f"p{n}", plugin) for n, plugin in enumerate(plugins)]
    return Registry(named, discover=False, **more)


def only(registry):
    (one,) = registry.installed
    return one


def good_beside(plugin):
    """A registry of the plugin and a good one, which must work; what became of the plugin."""
    registry = registry_of(plugin, Plugin())
    registry.open_blob("good:x").close()
    return registry.installed[0]


def module(**names):
    made = types.ModuleType("plugin")
    for name, value in names.items():
        setattr(made, name, value)
    return made


@hookimpl
def mzsql_open_blob(url):
    return MemBlob() if url.scheme == "module" else None


def test_a_plugin_for_newer_hooks_is_refused_with_what_to_upgrade():
    told = good_beside(module(MZSQL_HOOKS=HOOKS_VERSION + 1, mzsql_open_blob=mzsql_open_blob))
    assert told.state == "refused"
    assert told.hooks_version == HOOKS_VERSION + 1
    assert "upgrade mzsql" in told.failure
    with pytest.raises(UnknownScheme, match="refused: it is written for version"):
        registry_of(module(MZSQL_HOOKS=99, mzsql_open_blob=mzsql_open_blob)).open_blob("module:")


@pytest.mark.parametrize("said", [None, "1", 0, -1, True, 1.0])
def test_a_version_that_is_none_is_reported(said):
    told = good_beside(module(MZSQL_HOOKS=said, mzsql_open_blob=mzsql_open_blob))
    assert told.state == "failed"
    assert "MZSQL_HOOKS" in told.failure


def test_a_plugin_that_says_no_version_is_taken_for_the_first():
    told = good_beside(module(mzsql_open_blob=mzsql_open_blob))
    assert (told.state, told.hooks_version, told.declares) == ("loaded", 1, False)


def test_a_plugin_for_older_hooks_works(monkeypatch):
    monkeypatch.setattr("mzsql.location.registry.HOOKS_VERSION", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        older = good_beside(module(MZSQL_HOOKS=1, mzsql_open_blob=mzsql_open_blob))
        same = good_beside(module(MZSQL_HOOKS=2, mzsql_open_blob=mzsql_open_blob))
    newer = good_beside(module(MZSQL_HOOKS=3, mzsql_open_blob=mzsql_open_blob))
    assert [one.state for one in (older, same, newer)] == ["loaded", "loaded", "refused"]


@hookimpl(specname="mzsql_open_blob")
def unknown_argument(url, colour):
    return None


@hookimpl
def mzsql_open_blop(url):
    return None


def test_hooks_that_do_not_fit_are_reported():
    told = good_beside(module(mzsql_open_blob=unknown_argument))
    assert told.state == "failed"
    assert "colour" in told.failure
    told = good_beside(module(mzsql_open_blop=mzsql_open_blop))
    assert "there is no hook 'mzsql_open_blop'" in told.failure
    assert "implements no hook" in good_beside(module()).failure
    assert "names None" in good_beside(None).failure


def test_a_plugin_whose_registration_raises_is_reported():
    class Hostile:
        def __dir__(self):
            raise OSError("no dir for you")

    assert "no dir for you" in good_beside(Hostile()).failure


def test_two_plugins_of_one_name():
    registry = Registry([("same", Plugin("a")), ("same", Plugin("b"))], discover=False)
    assert [one.state for one in registry.installed] == ["loaded", "failed"]
    assert "another plugin is named 'same'" in registry.installed[1].failure
    registry.open_blob("a:x").close()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([Serves("blob", ("No Scheme",), "x")], "schemes no URL can have"),
        ([Serves("blob", (), "x")], "schemes no URL can have"),
        ([Serves("consensus", ("x",), "x")], "has no mzsql_open_consensus"),
        ([Serves("tape", ("x",), "x")], "no known kind"),
        (["blob"], "no known kind"),
        (7, "7, not a list of Serves"),
        ("blob", "'blob', not a list of Serves"),
        (Serves("blob", ("x",), "x"), "not a list of Serves"),
        ([Serves("blob", "xyz", "xyz:")], "schemes 'xyz', not a tuple"),
        ([Serves("blob", ("x",), 7)], "the form 7, not a text"),
    ],
)
def test_a_wrong_declaration_is_reported(answer, told):
    class Wrong(Plugin):
        @hookimpl
        def mzsql_serves(self):
            return answer

    became = good_beside(Wrong("wrong"))
    assert became.state == "failed"
    assert told in became.failure


def test_a_declaration_that_raises_is_reported():
    class Raises(Plugin):
        @hookimpl
        def mzsql_serves(self):
            raise KeyError("MY_SETTING")

    assert "KeyError: 'MY_SETTING'" in good_beside(Raises()).failure


class Computes:
    """Its attributes are computed, and cannot be."""

    def __getattr__(self, name):
        raise RuntimeError(f"no {name} today")


def test_a_plugin_whose_attributes_raise_is_reported():
    assert "RuntimeError: no MZSQL_HOOKS today" in good_beside(Computes()).failure


class Leaves(Plugin):
    """Ends the program when asked for anything."""

    @hookimpl
    def mzsql_open_blob(self, url):
        raise SystemExit(f"not for {url.scheme}")

    @hookimpl
    def mzsql_scratch_url(self, kind, directory):
        raise SystemExit(0)

    @hookimpl
    def mzsql_builtin_relations(self):
        raise SystemExit(0)


def test_a_plugin_that_would_end_the_program_fails_alone():
    registry = registry_of(Leaves("leaves"), Plugin())
    with pytest.raises(PluginFailed, match="failed to open leaves:x: SystemExit: not for leaves"):
        registry.open_blob("leaves:x")
    with pytest.raises(PluginFailed, match="failed to name a scratch URL: SystemExit: 0"):
        registry.scratch_url("p0", "blob", "/tmp")
    with pytest.warns(PluginWarning, match="its relations cannot be had: SystemExit: 0"):
        assert registry.builtin_relations() == []
    registry.open_blob("good:x").close()


def test_a_scratch_url_that_is_no_text_is_refused():
    class Numbers(Plugin):
        @hookimpl
        def mzsql_scratch_url(self, kind, directory):
            return 7

    with pytest.raises(PluginFailed, match="names the scratch URL 7"):
        registry_of(Numbers()).scratch_url("p0", "blob", "/tmp")


class Grumpy:
    """Says nothing about what it serves, and raises for every URL but its own."""

    @hookimpl
    def mzsql_open_blob(self, url):
        if url.scheme != "grumpy":
            raise ValueError(f"what is {url.geturl()}?")
        return MemBlob()


def test_a_plugin_that_raises_for_others_urls_breaks_nobody():
    registry = registry_of(Grumpy(), Plugin())
    with pytest.warns(PluginWarning, match="URL of another plugin"):
        registry.open_blob("good:x").close()
    assert "what is good:x" in registry.installed[0].failure
    registry.open_blob("grumpy:x").close()
    with pytest.raises(PluginFailed, match=r"'p0'.*failed to open nobody:x: ValueError"):
        registry.open_blob("nobody:x")


def test_who_says_what_it_serves_is_asked_for_that_only():
    one, two = Plugin("one"), Plugin("two")
    registry = registry_of(one, two)
    registry.open_blob("one:x").close()
    assert (one.asked, two.asked) == (["one:x"], [])
    with pytest.raises(UnknownScheme):
        registry.open_blob("three:x")
    assert (one.asked, two.asked) == (["one:x"], [])


def test_two_that_say_they_serve_a_scheme_are_refused_with_neither_opened():
    one, two = Plugin("same"), Plugin("same")
    with pytest.raises(UnknownScheme, match=r"more than one plugin serves .* 'same': p0, p1"):
        registry_of(one, two).open_blob("same:x")
    assert one.asked == two.asked == []


def test_one_that_says_so_and_one_that_does_not():
    said, silent = Plugin("module"), module(mzsql_open_blob=mzsql_open_blob)
    with pytest.raises(UnknownScheme, match="more than one plugin"):
        registry_of(said, silent).open_blob("module:x")


def test_who_does_not_open_what_it_says_it_serves():
    class Idle(Plugin):
        @hookimpl
        def mzsql_open_blob(self, url):
            return None

    with pytest.raises(PluginFailed, match=r"says it serves .* and does not open idle:x"):
        registry_of(Idle("idle")).open_blob("idle:x")


def test_what_is_no_backend_is_refused():
    class Odd(Plugin):
        @hookimpl
        def mzsql_open_blob(self, url):
            return {}

    with pytest.raises(PluginFailed, match=r"as a dict, which is no Blob store: it lacks .*delete"):
        registry_of(Odd("odd")).open_blob("odd:x")


def test_a_plugins_own_exception_shows_no_password():
    class Leaks(Plugin):
        @hookimpl
        def mzsql_open_blob(self, url):
            raise ConnectionError(f"cannot connect to {url.geturl()} with {url.password}")

    with pytest.raises(PluginFailed) as raised:
        registry_of(Leaks("leaks")).open_blob(f"leaks://me:{SENTINEL}@h/d?secret_key={SENTINEL}2")
    assert SENTINEL not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert "cannot connect to leaks://me:***@h/d" in str(raised.value)


def test_a_plugins_own_refusal_passes_as_it_is():
    class Picky(Plugin):
        @hookimpl
        def mzsql_open_blob(self, url):
            raise InvalidUrl("no such colour")

    with pytest.raises(InvalidUrl, match="no such colour"):
        registry_of(Picky("picky")).open_blob("picky:x")


_spec = pluggy.HookspecMarker(real_specs.PROJECT)


class NextRelease:
    """Hooks as a coming release might have them: one deprecated whole, one with a deprecated argument."""

    @_spec(
        firstresult=True,
        warn_on_impl=DeprecationWarning("mzsql_old goes in 0.3: use mzsql_open_blob"),
    )
    def mzsql_old(self, url):
        """Deprecated."""

    @_spec(
        firstresult=True,
        warn_on_impl_args={"colour": DeprecationWarning("colour goes in 0.3: use shade")},
    )
    def mzsql_paint(self, url, colour, shade):
        """An argument is deprecated."""


class UsesOldHook(Plugin):
    @hookimpl
    def mzsql_old(self, url):
        return "old"


class UsesOldArgument(Plugin):
    @hookimpl
    def mzsql_paint(self, url, colour):
        return f"{url} {colour}"


class UsesNothingOld(Plugin):
    @hookimpl
    def mzsql_paint(self, url, shade):
        return f"{url} {shade}"


def test_what_is_deprecated_works_and_warns_only_who_uses_it():
    specs = (real_specs, NextRelease)
    with pytest.warns(DeprecationWarning, match="mzsql_old goes in 0.3"):
        registry = registry_of(UsesOldHook(), specs=specs)
    assert only(registry).state == "loaded"
    assert only(registry).deprecated == ("mzsql_old: mzsql_old goes in 0.3: use mzsql_open_blob",)
    assert registry.manager.hook.mzsql_old(url="u") == "old"
    registry.open_blob("good:x").close()
    with pytest.warns(DeprecationWarning, match="colour goes in 0.3"):
        registry = registry_of(UsesOldArgument(), specs=specs)
    assert only(registry).deprecated == ("mzsql_paint(colour): colour goes in 0.3: use shade",)
    # The caller already passes the new argument beside the old one.
    assert registry.manager.hook.mzsql_paint(url="u", colour="red", shade="dark") == "u red"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry = registry_of(UsesNothingOld(), specs=specs)
    assert only(registry).deprecated == ()


def test_what_was_removed_is_named_and_the_rest_works():
    told = good_beside(UsesOldHook("old"))
    assert told.state == "failed"
    assert "there is no hook 'mzsql_old'" in told.failure


def test_the_hooks_of_this_release_warn_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry = Registry()
    builtin = [one for one in registry.installed if one.distribution == "mzsql"]
    assert [one.name for one in builtin] == ["file", "mem", "sqlite"]
    assert all(one.state == "loaded" and one.declares for one in builtin)


def install(site: Path, name: str, body: str | None, *, metadata: str | None = None, entry=None):
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    plain = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    if metadata != "":
        (folder / "METADATA").write_text(metadata or plain)
    entries = entry or f"[mzsql]\n{name} = mzsql_{name}_module\n"
    (folder / "entry_points.txt").write_bytes(
        entries if isinstance(entries, bytes) else entries.encode()
    )
    if body is not None:
        (site / f"mzsql_{name}_module.py").write_text(body)


GOOD_BODY = """
from mzsql.location import hookimpl
from mzsql.location.mem import MemBlob

@hookimpl
def mzsql_open_blob(url):
    return MemBlob() if url.scheme == "good" else None
"""


def test_distributions_broken_in_every_way_are_reported_and_harmless(tmp_path):
    install(tmp_path, "good", GOOD_BODY)
    install(tmp_path, "raises", "raise RuntimeError('boom')")
    install(tmp_path, "exits", "import sys; sys.exit(3)")
    install(tmp_path, "absent", None)
    install(tmp_path, "syntax", "def (")
    install(tmp_path, "nameless", GOOD_BODY.replace("good", "nameless"), metadata="Version: 1\n")
    install(
        tmp_path, "versionless", GOOD_BODY.replace("good", "vl"), metadata="Name: versionless\n"
    )
    install(tmp_path, "bare", GOOD_BODY.replace("good", "bare"), metadata="")
    install(
        tmp_path, "attribute", "", entry="[mzsql]\nattribute = mzsql_attribute_module:missing\n"
    )
    install(tmp_path, "binary", "", entry=b"[mzsql]\n\xff\xfe = x\n")
    install(tmp_path, "odd", "", entry="[mzsql]\nodd = !!not an entry point!!\n")
    code = (
        "from mzsql.location import default_registry, open_blob\n"
        "for url in ('mem:', 'good:x', 'bare:x', 'vl:x', 'nameless:x'):\n"
        "    open_blob(url).set('k', b'v')\n"
        "for one in default_registry().installed:\n"
        "    print(one.name, '|', one.distribution, '|', one.version, '|', one.state, '|', one.failure)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for line in (
        "good | good | 1.0 | loaded | None",
        "raises | raises | 1.0 | failed | RuntimeError: boom",
        "exits | exits | 1.0 | failed | SystemExit: 3",
        "absent | absent | 1.0 | failed | ModuleNotFoundError: No module named",
        "syntax | syntax | 1.0 | failed | SyntaxError",
        "versionless | versionless | (unknown) | loaded | None",
        "attribute | attribute | 1.0 | failed | AttributeError",
        "binary | binary | 1.0 | failed | its entry points cannot be read",
        "odd | odd | 1.0 | failed |",
    ):
        assert line in ran.stdout
    assert "nameless | (unknown) |" in ran.stdout
    assert "bare | (unknown) | (unknown) | loaded" in ran.stdout


def test_complaints_add_up_and_are_kept_once_each():
    registry = registry_of(Plugin())
    for what in ("it is slow", "it is loud", "it is slow"):
        with pytest.warns(PluginWarning, match=what):
            registry.complain("p0", what)
    assert only(registry).failure == "it is slow; it is loud"
