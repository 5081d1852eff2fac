"""A repository for the package `kernels` of Hugging Face: functions and layers of generated modules.

layers       the layer classes of a spec as text
package      the Python files of a build variant, and metadata.json with the digest of each file
card         README.md, with the errors of the certificates
licence      LICENSE
repository   all files of a repository, and the changes of a folder
"""

from fusegen.tools.hub.repository import Repository, planned

__all__ = ["Repository", "planned"]
