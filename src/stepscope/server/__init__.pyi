from .process import serve as serve, url_of as url_of
from .settings import (
    FIRST_PORT as FIRST_PORT,
    MIN_TOKEN_LENGTH as MIN_TOKEN_LENGTH,
    Settings as Settings,
    start_fork_server as start_fork_server,
)
