"""A file, a folder or a document that cannot be used."""

from __future__ import annotations

from fusegen.errors.base import FusegenError


class Unreadable(FusegenError):
    sentence = "{why}"
    hint = "{remedy}"


class NoAccess(FusegenError):
    sentence = "this cannot be {act}: {why}"
    hint = "{remedy}"


class BadManifest(FusegenError):
    sentence = "this is not a manifest of fusegen: {why}"
    hint = "choose another --output; or delete the file, and 'python -m fusegen build' writes it again"


class NotGenerated(FusegenError):
    sentence = "fusegen did not write this file, and the module of a spec would replace it"
    hint = "move it, give the spec another name, or choose another --output"


class NotOwnPackage(FusegenError):
    sentence = "fusegen did not write this file, and --package would replace it"
    hint = "empty it, or write its exports yourself"


class TwoOfOneExport(FusegenError):
    sentence = "the specs {first} and {second} both export {name}"
    hint = "give one of them another name; 'python -m fusegen build --prune' removes modules without a spec"


class BrokenModule(FusegenError):
    sentence = "this module was changed after it was written, and its exports cannot be read: {why}"
    hint = "run 'python -m fusegen build {name}', or delete it if it has no spec"


class OtherBinding(FusegenError):
    sentence = (
        "the folder has modules of the binding {binding!r}, such as {name}, that this would not remake"
    )
    hint = "name no spec, so that all are made with --binding {other}; or choose another --output"


class NoSuchSpec(FusegenError):
    sentence = "there is no spec {name!r}"
    hint = "{near}"


class SeveralOfOneName(FusegenError):
    sentence = "{name!r} is the name of several specs: {places}"
    hint = "name one with its folder"


class HiddenModules(FusegenError):
    sentence = "this module would hide those in the folder {folder} from imports"
    hint = "give the spec or the folder of specs another name"


class TooLarge(FusegenError):
    sentence = "{what} is too large: {size}, where at most {limit} are allowed"
    hint = "{remedy}"


class TooMany(FusegenError):
    sentence = "{what} has more than {limit} {parts}"
    hint = "{remedy}"


class NotYaml(FusegenError):
    sentence = "this is not valid YAML: {problem}"
    hint = "{remedy}"


class YamlFeature(FusegenError):
    sentence = "{feature} are not allowed in a spec"
    hint = "{remedy}"


class NoBuildFolder(FusegenError):
    sentence = "no folder to build in: neither TORCH_EXTENSIONS_DIR, XDG_CACHE_HOME nor HOME is set"
    hint = "set the first"


class NotOwn(FusegenError):
    sentence = "this folder is not yours alone, so nothing in it is removed"
    hint = "make it yours (chown, chmod go-w; no link), or set TORCH_EXTENSIONS_DIR to another folder"


class OtherRuntime(FusegenError):
    sentence = "the runtime of these modules is another fusegen's, so their libraries are not known"
    hint = "run 'python -m fusegen build' first"
