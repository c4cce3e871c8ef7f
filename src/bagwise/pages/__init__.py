"""Pages to look at and to send: a diagnosis, a model, a comparison of models, a reproduction run.

Each is one HTML file that needs nothing else: no network, no script, no font. The verdict comes first, in plain words.
What comes from users' tables is shown, never run. The same input gives the same bytes.
"""

from bagwise.pages.comparison import comparison_page
from bagwise.pages.diagnosis import diagnosis_page
from bagwise.pages.model import model_page
from bagwise.pages.page import Page, write
from bagwise.pages.reproduction import reproduction_page

__all__ = ["Page", "comparison_page", "diagnosis_page", "model_page", "reproduction_page", "write"]
