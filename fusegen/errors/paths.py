"""A file, a folder or a document that cannot be used."""

from fusegen.errors.base import FusegenError, Sentence

Unreadable = Sentence("{why}", "{remedy}")
NoAccess = Sentence("this cannot be {act}: {why}", "{remedy}")
BadManifest = Sentence(
    "this is not a manifest of fusegen: {why}",
    "choose another --output; or delete the file, and 'python -m fusegen build' writes it again",
)
NotGenerated = Sentence(
    "fusegen did not write this file, and the module of a spec would replace it",
    "move it, give the spec another name, or choose another --output",
)
NotOwnPackage = Sentence(
    "fusegen did not write this file, and --package would replace it",
    "empty it, or write its exports yourself",
)
TwoOfOneExport = Sentence(
    "the specs {first} and {second} both export {name}",
    "give one of them another name; 'python -m fusegen build --prune' removes modules without a spec",
)
BrokenModule = Sentence(
    "this module was changed after it was written, and its exports cannot be read: {why}",
    "run 'python -m fusegen build {name}', or delete it if it has no spec",
)
OtherBinding = Sentence(
    "the folder has modules of the binding {binding!r}, such as {name}, that this would not remake",
    "name no spec, so that all are made with --binding {other}; or choose another --output",
)
NoSuchSpec = Sentence("there is no spec {name!r}", "{near}")
SeveralOfOneName = Sentence("{name!r} is the name of several specs: {places}", "name one with its folder")
HiddenModules = Sentence(
    "this module would hide those in the folder {folder} from imports",
    "give the spec or the folder of specs another name",
)
TooLarge = Sentence("{what} is too large: {size}, where at most {limit} are allowed", "{remedy}")


class TooMany(FusegenError):
    sentence = "{what} has more than {limit} {parts}"
    hint = "{remedy}"


NotYaml = Sentence("this is not valid YAML: {problem}", "{remedy}")
YamlFeature = Sentence("{feature} are not allowed in a spec", "{remedy}")
NoBuildFolder = Sentence(
    "no folder to build in: neither TORCH_EXTENSIONS_DIR, XDG_CACHE_HOME nor HOME is set", "set the first"
)
NotOwn = Sentence(
    "this folder is not yours alone, so nothing in it is removed",
    "make it yours (chown, chmod go-w; no link), or set TORCH_EXTENSIONS_DIR to another folder",
)
OtherRuntime = Sentence(
    "the runtime of these modules is another fusegen's, so their libraries are not known",
    "run 'python -m fusegen build' first",
)
