"""Write the generated parts of all documents.

python -m tools.docs
"""

from __future__ import annotations

from tools.docs.blocks import find_documents, write_document

for document in find_documents():
    write_document(document)
