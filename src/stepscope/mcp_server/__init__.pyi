from .answers import Answers as Answers
from .sdk import serve as serve
