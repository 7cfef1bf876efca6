from .bucket import (
    Bucket as Bucket,
    BucketLocation as BucketLocation,
    Entry as Entry,
    UnreachableError as UnreachableError,
    is_path as is_path,
    map_parallel as map_parallel,
)
from .cache import cache_home as cache_home
from .documents import (
    CONFIGURATION_DECISIONS as CONFIGURATION_DECISIONS,
    CONFIGURATION_REQUESTS as CONFIGURATION_REQUESTS,
    ConfigurationChanges as ConfigurationChanges,
    RequestState as RequestState,
    RequestStatus as RequestStatus,
    WindowAgreement as WindowAgreement,
    WindowRequest as WindowRequest,
    WindowRequests as WindowRequests,
    WindowStatus as WindowStatus,
    create_run as create_run,
)
from .engine import (
    NUMPY_TYPES as NUMPY_TYPES,
    DictColumn as DictColumn,
    identifier as identifier,
    join_columns as join_columns,
    literal as literal,
    prepare_database as prepare_database,
)
from .labels import (
    RunLabels as RunLabels,
    directory_name as directory_name,
    read_labels as read_labels,
    run_name as run_name,
    update_labels as update_labels,
)
from .launchers import (
    HEARTBEAT_TIMEOUT_S as HEARTBEAT_TIMEOUT_S,
    Heartbeats as Heartbeats,
    SharedRun as SharedRun,
)
from .layout import RUN_KEY as RUN_KEY, tensor_key as tensor_key
from .local import (
    FOLLOW_LINKS_VARIABLE as FOLLOW_LINKS_VARIABLE,
    LocalStore as LocalStore,
    check_link as check_link,
    make_private_directory as make_private_directory,
)
from .location import (
    Download as Download,
    check_free as check_free,
    download_files as download_files,
    is_remote as is_remote,
    open_store as open_store,
    repeated_runs as repeated_runs,
    upload_run as upload_run,
)
from .mirror import RunMirror as RunMirror, UploadRefusedError as UploadRefusedError
from .mirror_journal import (
    UploadTarget as UploadTarget,
    create_journal as create_journal,
    read_target as read_target,
)
from .notes import (
    Note as Note,
    RunNotes as RunNotes,
    SavedView as SavedView,
    read_notes as read_notes,
    update_notes as update_notes,
)
from .objectstore import ObjectStore as ObjectStore, is_hidden as is_hidden
from .parquet_files import (
    UnreadableParquetError as UnreadableParquetError,
    list_parquet_columns as list_parquet_columns,
    read_parquet_columns as read_parquet_columns,
)
from .reader import RunReader as RunReader, open_run as open_run
from .results import Results as Results
from .revision import (
    CachedRun as CachedRun,
    RunWatch as RunWatch,
    describe_source as describe_source,
    revision_of as revision_of,
    revision_of_entries as revision_of_entries,
    size_of as size_of,
)
from .writer import RunWriter as RunWriter
