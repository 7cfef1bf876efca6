from .display import show as show
from .html import render_html as render_html, write_report_directory as write_report_directory
from .notebook import render_notebook as render_notebook
