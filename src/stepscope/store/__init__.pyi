from .bucket import (
    Bucket as Bucket,
    BucketLocation as BucketLocation,
    Entry as Entry,
    UnreachableError as UnreachableError,
    is_path as is_path,
    map_parallel as map_parallel,
)
from .cache import cache_home as cache_home
from .columns import (
    NUMPY_TYPES as NUMPY_TYPES,
    DictColumn as DictColumn,
    join_columns as join_columns,
)
from .configuration import (
    CONFIGURATION_DECISIONS as CONFIGURATION_DECISIONS,
    CONFIGURATION_REQUESTS as CONFIGURATION_REQUESTS,
    ConfigurationChanges as ConfigurationChanges,
)
from .documents import create_run as create_run
from .download import (
    Download as Download,
    download_files as download_files,
)
from .engine import (
    literal as literal,
)
from .heartbeats import (
    HEARTBEAT_TIMEOUT_S as HEARTBEAT_TIMEOUT_S,
    Heartbeats as Heartbeats,
)
from .launchers import SharedRun as SharedRun
from .layout import (
    RUN_KEY as RUN_KEY,
    tensor_key as tensor_key,
)
from .local import (
    FOLLOW_LINKS_VARIABLE as FOLLOW_LINKS_VARIABLE,
    LocalStore as LocalStore,
    check_link as check_link,
    make_private_directory as make_private_directory,
)
from .location import (
    is_remote as is_remote,
    open_store as open_store,
)
from .mirror import (
    RunMirror as RunMirror,
    UploadRefusedError as UploadRefusedError,
)
from .mirror_journal import (
    UploadTarget as UploadTarget,
    create_journal as create_journal,
    read_target as read_target,
)
from .objectstore import (
    ObjectStore as ObjectStore,
    is_hidden as is_hidden,
)
from .opening import open_run as open_run
from .parquet_file import (
    UnreadableParquetError as UnreadableParquetError,
    list_parquet_columns as list_parquet_columns,
    read_parquet_columns as read_parquet_columns,
)
from .reader import RunReader as RunReader
from .repeats import repeated_runs as repeated_runs
from .revision import (
    revision_of as revision_of,
    revision_of_entries as revision_of_entries,
    size_of as size_of,
)
from .run_cache import (
    CachedRun as CachedRun,
    describe_source as describe_source,
)
from .upload import (
    check_free as check_free,
    upload_run as upload_run,
)
from .window_requests import (
    RequestState as RequestState,
    RequestStatus as RequestStatus,
    WindowAgreement as WindowAgreement,
    WindowRequest as WindowRequest,
    WindowRequests as WindowRequests,
    WindowStatus as WindowStatus,
)
from .writer import RunWriter as RunWriter
