from .display import Shown as Shown, show as show
from .html import report_html as report_html
from .notebook import report_notebook as report_notebook
