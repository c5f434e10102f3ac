#include "harness/results/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include "harness/core/error.h"
#include "harness/results/results_store.h"
#include "harness/results/schema.h"

namespace kvarena::results {
namespace {

namespace fs = std::filesystem;

constexpr int kBusyTimeoutMs = 5000;  // the only wait is for a checkpoint of the writer, which takes milliseconds

/// Advice to the user about an error of this primary code.
std::string_view remedy(int code) {
  switch (code) {
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN: return "give write permission on the file and its folder, or choose another output.database";
    case SQLITE_FULL: return "free space on the disk and run again: what was committed is kept";
    case SQLITE_IOERR: return "look at the disk, then run again: what was committed is kept";
    case SQLITE_CORRUPT: return "restore a copy, or save what can be read with `sqlite3 FILE .recover`";
    case SQLITE_CONSTRAINT: return "`kvarena doctor --database FILE` looks for damage; restore a copy";
    case SQLITE_NOTADB: return "choose another output.database";
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return "close the program that holds it";
    default: return "";
  }
}

/// A path inside a file: URI.
std::string uri_path(const fs::path& path) {
  std::string text;
  for (const char c : fs::absolute(path).string()) {
    if (c == '%' || c == '?' || c == '#') {
      text += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text;
}

std::unique_ptr<SQLite::Database> connect(const std::string& name, int flags) {
  auto database = std::make_unique<SQLite::Database>(name, flags, kBusyTimeoutMs);
  // The first look at the file happens here, not in the constructor above.
  database->execAndGet("SELECT count(*) FROM sqlite_schema");
  return database;
}

/// Copies an older file before it is changed: "results.db.format2". An existing copy is an earlier attempt's and stays.
void keep_old_format(SQLite::Database& database, const fs::path& path) {
  const int version = checked_version(database, path.string());
  if (version == 0 || version == migrations().back().version) return;
  const std::string copy = fmt::format("{}.format{}", path.string(), version);
  if (fs::exists(copy)) return;
  const std::string part = copy + ".part";
  fs::remove(part);
  SQLite::Statement save(database, "VACUUM INTO ?");
  save.bind(1, part);
  save.exec();
  fs::rename(part, copy);
}

/// True when the write-ahead log holds nothing that the file itself lacks.
bool log_is_empty(const fs::path& path) {
  std::error_code ignored;
  const auto size = fs::file_size(path.string() + "-wal", ignored);
  return ignored || size == 0;
}

}  // namespace

void fail_sql(const std::string& place, std::string_view attempt, const SQLite::Exception& error) {
  const int code = error.getErrorCode() & 0xff;
  fail({.place = place,
        .found = fmt::format("a database that refuses to {} ({})", attempt, error.what()),
        .action = std::string(remedy(code))});
}

void fail_damaged(const std::string& place, const std::string& found) {
  fail({.place = place,
        .found = "a damaged database: " + found,
        .action =
            fmt::format("`kvarena doctor --database {}` lists the damage; restore a copy, or save what can be read "
                        "with `sqlite3 {} .recover`",
                        place, place)});
}

void refuse_nowhere(const fs::path& path) {
  const auto refuse = [&](const std::string& found) {
    fail({.place = path.empty() ? "the results database" : path.string(),
          .found = found,
          .expected = "the name of a file in which results stay",
          .action = "choose another output.database"});
  };
  if (path.empty()) refuse("no name");
  if (path == ":memory:") refuse("memory, which is lost at the end");
  if (fs::exists(path) && !fs::is_regular_file(path)) refuse("no regular file");
}

void refuse_lost_file(SQLite::Database& database) {
  int moved = 0;
  ::sqlite3_file_control(database.getHandle(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (moved == 0) return;
  fail({.place = database.getFilename(),
        .found = "a database that was removed, renamed or replaced while it was written",
        .action = "results of this run since then are lost; leave the file in place and run again"});
}

std::string sqlite_name(const fs::path& path) {
  return (path.string().starts_with("file:") ? fs::absolute(path) : path).string();
}

std::string sqlite_version() { return sqlite3_libversion(); }

std::unique_ptr<SQLite::Database> open_to_read(const fs::path& path) {
  const std::string place = path.string();
  if (!fs::exists(path)) {
    fail({.place = place, .found = "no file", .expected = "a results database", .action = "`kvarena run` makes one"});
  }
  if (!fs::is_regular_file(path)) fail({.place = place, .found = "no regular file", .expected = "a results database"});
  const int reading = SQLite::OPEN_READONLY | SQLite::OPEN_NOMUTEX;  // one thread at a time
  std::unique_ptr<SQLite::Database> database;
  try {
    database = connect(sqlite_name(path), reading);
  } catch (const SQLite::Exception& error) {
    // Reading in WAL mode wants to write a -shm file. Where that is impossible and no log is pending, the file alone
    // is the whole truth.
    const int code = error.getErrorCode() & 0xff;
    if ((code != SQLITE_CANTOPEN && code != SQLITE_READONLY) || !log_is_empty(path)) fail_sql(place, "open", error);
    database = checked(place, "open",
                       [&] { return connect("file:" + uri_path(path) + "?immutable=1", reading | SQLite::OPEN_URI); });
  }
  const int version = checked_version(*database, place);
  if (version == 0) fail({.place = place, .found = "an empty database", .action = "`kvarena run` fills one"});
  if (version != migrations().back().version) {
    fail({.place = place,
          .found = fmt::format("results in the older format {}", version),
          .expected = fmt::format("format {}", migrations().back().version),
          .action = "`kvarena run` brings the file up to date"});
  }
  return database;
}

std::unique_ptr<SQLite::Database> open_to_write(const fs::path& path) {
  const std::string place = path.string();
  return checked(place, "open for writing", [&] {
    auto database = connect(sqlite_name(path), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    checked_version(*database, place);  // before the first change to a file that may not be ours
    database->exec("PRAGMA journal_mode = WAL");
    // A commit survives the death of the process; after a power cut the last ones may be missing, none is torn.
    database->exec("PRAGMA synchronous = NORMAL");
    keep_old_format(*database, path);
    migrate(*database, place);
    SQLite::Transaction proof(*database, SQLite::TransactionBehavior::IMMEDIATE);
    database->exec(fmt::format("PRAGMA user_version = {}", migrations().back().version));
    proof.commit();
    return database;
  });
}

}  // namespace kvarena::results
