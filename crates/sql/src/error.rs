//! Errors with PostgreSQL's SQLSTATEs.
//!
//! A client decides by the SQLSTATE what to do, a person by message, detail and hint. Constructors stand for the common
//! cases, so that the same mistake reads the same wherever it is found.

use std::borrow::Cow;
use std::fmt;

/// Result of a SQL operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A five-character SQLSTATE.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl SqlState {
    /// The state of this code, as another server tells it; where it is not known here, one of the same class.
    pub fn of(code: &str) -> Option<SqlState> {
        let class = code.get(..2)?;
        let exact = SqlState::ALL.iter().find(|state| state.0 == code);
        exact.or_else(|| SqlState::ALL.iter().find(|state| state.0.starts_with(class))).copied()
    }
}

macro_rules! states {
    ($($name:ident = $code:literal, $what:literal;)*) => {
        impl SqlState {
            $(#[doc = $what] pub const $name: SqlState = SqlState($code);)*

            const ALL: &[SqlState] = &[$(SqlState::$name),*];
        }
    };
}

states! {
    SUCCESSFUL_COMPLETION = "00000", "No error.";
    WARNING = "01000", "Something to know.";
    FEATURE_NOT_SUPPORTED = "0A000", "Valid SQL that is not implemented.";
    CARDINALITY_VIOLATION = "21000", "More than one row where one was expected.";
    STRING_DATA_RIGHT_TRUNCATION = "22001", "A string too long for its type.";
    NUMERIC_VALUE_OUT_OF_RANGE = "22003", "A number its type cannot hold.";
    NULL_VALUE_NOT_ALLOWED = "22004", "NULL where a value is needed.";
    INVALID_DATETIME_FORMAT = "22007", "Text that is no date or time.";
    DATETIME_FIELD_OVERFLOW = "22008", "A date or time out of range.";
    DIVISION_BY_ZERO = "22012", "Division by zero.";
    INVALID_PARAMETER_VALUE = "22023", "A parameter of a function or setting that makes no sense.";
    INVALID_ESCAPE_SEQUENCE = "22025", "A LIKE pattern that ends in its escape character.";
    INVALID_REGULAR_EXPRESSION = "2201B", "A pattern that is no regular expression.";
    INVALID_ROW_COUNT_IN_LIMIT = "2201W", "A negative LIMIT.";
    INVALID_ROW_COUNT_IN_OFFSET = "2201X", "A negative OFFSET.";
    INVALID_ARGUMENT_FOR_LOGARITHM = "2201E", "The logarithm of what has none.";
    INVALID_ARGUMENT_FOR_POWER = "2201F", "A power that does not exist.";
    INVALID_ARGUMENT_FOR_WIDTH_BUCKET = "2201G", "Buckets that make no sense.";
    ARRAY_SUBSCRIPT_ERROR = "2202E", "Arrays that do not go together, or an index outside of one.";
    ZERO_LENGTH_CHARACTER_STRING = "2200F", "An empty string where a character is needed.";
    SUBSTRING_ERROR = "22011", "A substring of negative length.";
    CHARACTER_NOT_IN_REPERTOIRE = "22021", "Bytes that are not valid UTF-8.";
    INVALID_TEXT_REPRESENTATION = "22P02", "Text that is no value of the type.";
    INVALID_BINARY_REPRESENTATION = "22P03", "Bytes that are no value of the type.";
    BAD_COPY_FILE_FORMAT = "22P04", "COPY data that cannot be read.";
    UNTRANSLATABLE_CHARACTER = "22P05", "A character the client's encoding lacks.";
    RESTRICT_VIOLATION = "23001", "A row that others refer to.";
    NOT_NULL_VIOLATION = "23502", "NULL in a column declared NOT NULL.";
    FOREIGN_KEY_VIOLATION = "23503", "A reference to nothing, or to a row about to go.";
    UNIQUE_VIOLATION = "23505", "A key that is there already.";
    CHECK_VIOLATION = "23514", "A row that its table's check refuses.";
    INVALID_CURSOR_STATE = "24000", "A portal that cannot do this now.";
    INVALID_TRANSACTION_STATE = "25000", "Not now.";
    ACTIVE_SQL_TRANSACTION = "25001", "Not inside a transaction.";
    READ_ONLY_SQL_TRANSACTION = "25006", "A change in a read-only transaction.";
    NO_ACTIVE_SQL_TRANSACTION = "25P01", "Needs a transaction.";
    IN_FAILED_SQL_TRANSACTION = "25P02", "The transaction has failed and waits for its end.";
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03", "The session was idle in a transaction for too long.";
    TRANSACTION_TIMEOUT = "25P04", "The transaction was open, and held garbage back, for too long.";
    INVALID_SQL_STATEMENT_NAME = "26000", "No prepared statement of this name.";
    INVALID_AUTHORIZATION_SPECIFICATION = "28000", "Not allowed in.";
    INVALID_PASSWORD = "28P01", "Wrong password.";
    INVALID_CURSOR_NAME = "34000", "No portal of this name.";
    SAVEPOINT_EXCEPTION = "3B001", "No savepoint of this name.";
    INVALID_CATALOG_NAME = "3D000", "No database of this name.";
    INVALID_SCHEMA_NAME = "3F000", "No schema of this name.";
    SERIALIZATION_FAILURE = "40001", "Somebody else was first: run the transaction again.";
    DEADLOCK_DETECTED = "40P01", "Transactions waited for each other: run this one again.";
    SYNTAX_ERROR = "42601", "Not SQL.";
    INVALID_NAME = "42602", "Not a name.";
    INSUFFICIENT_PRIVILEGE = "42501", "Not permitted.";
    CANNOT_COERCE = "42846", "No such cast.";
    GROUPING_ERROR = "42803", "A column that is neither grouped nor aggregated.";
    WINDOWING_ERROR = "42P20", "A window function where none may stand.";
    INVALID_FOREIGN_KEY = "42830", "A foreign key onto columns that are not unique.";
    NAME_TOO_LONG = "42622", "A name that is too long.";
    RESERVED_NAME = "42939", "A name that is the system's own.";
    DATATYPE_MISMATCH = "42804", "A value of the wrong type.";
    WRONG_OBJECT_TYPE = "42809", "Something else bears this name.";
    UNDEFINED_COLUMN = "42703", "No such column.";
    UNDEFINED_FUNCTION = "42883", "No such function or operator.";
    UNDEFINED_TABLE = "42P01", "No such table.";
    UNDEFINED_PARAMETER = "42P02", "No such parameter.";
    UNDEFINED_OBJECT = "42704", "No such type, constraint, setting or role.";
    DUPLICATE_COLUMN = "42701", "A column named twice.";
    DUPLICATE_CURSOR = "42P03", "A portal of this name is there.";
    DUPLICATE_DATABASE = "42P04", "A database of this name is there.";
    DUPLICATE_PREPARED_STATEMENT = "42P05", "A prepared statement of this name is there.";
    DUPLICATE_SCHEMA = "42P06", "A schema of this name is there.";
    DUPLICATE_TABLE = "42P07", "A relation of this name is there.";
    DUPLICATE_ALIAS = "42712", "A table name used twice.";
    DUPLICATE_OBJECT = "42710", "An object of this name is there.";
    AMBIGUOUS_COLUMN = "42702", "A column of several tables.";
    AMBIGUOUS_FUNCTION = "42725", "Several functions or operators fit.";
    AMBIGUOUS_PARAMETER = "42P08", "A parameter of several types.";
    INDETERMINATE_DATATYPE = "42P18", "A type that cannot be told.";
    INVALID_COLUMN_REFERENCE = "42P10", "A column that cannot be referred to here.";
    INVALID_COLUMN_DEFINITION = "42611", "A column definition that makes no sense.";
    INVALID_TABLE_DEFINITION = "42P16", "A table definition that makes no sense.";
    INVALID_OBJECT_DEFINITION = "42P17", "A definition that makes no sense.";
    UNDEFINED_PREPARED_STATEMENT = "26000", "No prepared statement of this name.";
    INSUFFICIENT_RESOURCES = "53000", "The system has no more of something.";
    DISK_FULL = "53100", "The file system is full.";
    OUT_OF_MEMORY = "53200", "The memory budget has no room.";
    TOO_MANY_CONNECTIONS = "53300", "Too many connections.";
    PROGRAM_LIMIT_EXCEEDED = "54000", "Larger than a limit of the implementation.";
    STATEMENT_TOO_COMPLEX = "54001", "Nested too deeply.";
    TOO_MANY_COLUMNS = "54011", "Too many columns.";
    TOO_MANY_ARGUMENTS = "54023", "Too many arguments.";
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000", "The object cannot do this now.";
    OBJECT_IN_USE = "55006", "Somebody uses the object.";
    CANT_CHANGE_RUNTIME_PARAM = "55P02", "A setting that cannot be changed now.";
    LOCK_NOT_AVAILABLE = "55P03", "Locked by another.";
    QUERY_CANCELED = "57014", "Cancelled, or out of time.";
    ADMIN_SHUTDOWN = "57P01", "The server goes down.";
    CANNOT_CONNECT_NOW = "57P03", "The server is not ready.";
    IO_ERROR = "58030", "The device failed.";
    UNDEFINED_FILE = "58P01", "No such file.";
    DEPENDENT_OBJECTS_STILL_EXIST = "2BP01", "Others depend on the object.";
    PROTOCOL_VIOLATION = "08P01", "A message that the protocol does not allow.";
    INTERNAL_ERROR = "XX000", "A bug.";
    DATA_CORRUPTED = "XX001", "Stored bytes are not what was written.";
}

/// An error as a client sees it.
#[derive(Clone, Debug)]
pub struct Error(Box<Fields>);

/// The parts of an error.
#[derive(Clone, Debug)]
pub struct Fields {
    /// What kind of error.
    pub state: SqlState,
    /// One line: what is wrong.
    pub message: Cow<'static, str>,
    /// More about it.
    pub detail: Option<String>,
    /// The way out.
    pub hint: Option<String>,
    /// Where in the statement, in characters from 1.
    pub position: Option<usize>,
    /// Schema of the table concerned, where there is one.
    pub schema: Option<String>,
    /// The table concerned.
    pub table: Option<String>,
    /// The column concerned.
    pub column: Option<String>,
    /// The constraint concerned.
    pub constraint: Option<String>,
    /// Where it happened, for COPY.
    pub context: Option<String>,
    /// Which of the rows that an INSERT or COPY adds it is about, from 0, where that is none it is at.
    pub row: Option<u64>,
    /// Which of PostgreSQL's functions would have found it, where clients go by that.
    pub routine: Option<&'static str>,
}

impl Error {
    /// An error of a kind, with its message.
    pub fn new(state: SqlState, message: impl Into<Cow<'static, str>>) -> Self {
        Error(Box::new(Fields {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            schema: None,
            table: None,
            column: None,
            constraint: None,
            context: None,
            row: None,
            routine: None,
        }))
    }

    /// Valid SQL that is not implemented: `what` names it.
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// A bug: something that the code takes for impossible.
    pub fn internal(what: impl fmt::Display) -> Self {
        Self::new(SqlState::INTERNAL_ERROR, format!("internal error: {what}"))
    }

    /// A number out of a type's range.
    pub fn out_of_range(type_name: &str) -> Self {
        Self::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{type_name} out of range"))
    }

    /// Text that is no value of a type.
    pub fn invalid_text(type_name: &str, text: &str) -> Self {
        let message = format!("invalid input syntax for type {type_name}: \"{text}\"");
        Self::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    }

    /// Adds a detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds a place in the statement, in characters from 1.
    #[must_use]
    pub fn at(mut self, position: usize) -> Self {
        self.0.position.get_or_insert(position);
        self
    }

    /// Takes the place away: it is one in another text than the client's.
    #[must_use]
    pub(crate) fn without_position(mut self) -> Self {
        self.0.position = None;
        self
    }

    /// Names the table concerned.
    #[must_use]
    pub fn table(mut self, schema: &str, table: &str) -> Self {
        self.0.schema = Some(schema.to_owned());
        self.0.table = Some(table.to_owned());
        self
    }

    /// Names the column concerned.
    #[must_use]
    pub fn column(mut self, column: &str) -> Self {
        self.0.column = Some(column.to_owned());
        self
    }

    /// Names the constraint concerned.
    #[must_use]
    pub fn constraint(mut self, constraint: &str) -> Self {
        self.0.constraint = Some(constraint.to_owned());
        self
    }

    /// Adds where it happened, such as a line of COPY.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.0.context = Some(context.into());
        self
    }

    /// Says which of the rows that are added it is about, from 0.
    #[must_use]
    pub(crate) fn row(mut self, row: u64) -> Self {
        self.0.row = Some(row);
        self
    }

    /// Says which of PostgreSQL's functions would have found it.
    #[must_use]
    pub(crate) fn routine(mut self, routine: &'static str) -> Self {
        self.0.routine = Some(routine);
        self
    }

    /// What kind of error.
    pub fn state(&self) -> SqlState {
        self.0.state
    }

    /// All parts.
    pub fn fields(&self) -> &Fields {
        &self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

impl From<gannet_store::Error> for Error {
    fn from(error: gannet_store::Error) -> Self {
        use gannet_store::Error as Store;
        let state = match &error {
            // A session of a database that takes no changes any more goes on: it may read.
            Store::Io(_) | Store::Poisoned(_) | Store::Backup(_) => SqlState::IO_ERROR,
            Store::Damaged(_) | Store::NeverWritten(_) | Store::Format(_) => SqlState::DATA_CORRUPTED,
            Store::InUse(_) => SqlState::OBJECT_IN_USE,
            Store::Conflict(_) => SqlState::SERIALIZATION_FAILURE,
            Store::Deadlock(_) => SqlState::DEADLOCK_DETECTED,
            Store::Locked(_) => SqlState::LOCK_NOT_AVAILABLE,
            Store::Duplicate => SqlState::UNIQUE_VIOLATION,
            Store::Invalid(_) => SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            Store::Memory(_) | Store::NoFrame(_) => SqlState::OUT_OF_MEMORY,
            Store::NoSpace(_) => SqlState::DISK_FULL,
            Store::TooManyFiles(_) => SqlState::INSUFFICIENT_RESOURCES,
            Store::Cancelled => SqlState::QUERY_CANCELED,
            Store::TooOld => SqlState::TRANSACTION_TIMEOUT,
            _ => SqlState::INTERNAL_ERROR,
        };
        let message = match &error {
            Store::Conflict(_) => "could not serialize access due to concurrent update".to_owned(),
            Store::Deadlock(_) => "deadlock detected".to_owned(),
            Store::Cancelled => "canceling statement due to user request".to_owned(),
            other => other.to_string(),
        };
        Error::new(state, message)
    }
}
