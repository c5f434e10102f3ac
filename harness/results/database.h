#pragma once
// Inside the results folder: the one wrapper around SQLite's errors, and opening.

#include <SQLiteCpp/SQLiteCpp.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace kvarena::results {

/// Throws the UserError for what SQLite reported while `attempt` ("commit samples") on the file `place`.
[[noreturn]] void fail_sql(const std::string& place, std::string_view attempt, const SQLite::Exception& error);

/// Runs `work`, turning SQLite's exceptions into UserErrors that name the file and what was attempted.
template <typename Work>
decltype(auto) checked(const std::string& place, std::string_view attempt, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const SQLite::Exception& error) {
    fail_sql(place, attempt, error);
  }
}

/// Throws the UserError for a database that holds what this program never writes.
[[noreturn]] void fail_damaged(const std::string& place, const std::string& found);

/// Throws UserError when `path` is no place where results can stay: no name, memory, a device, a pipe, a folder.
void refuse_nowhere(const std::filesystem::path& path);

/// Throws UserError when the open file was removed or replaced by another: nobody will see what is written to it.
void refuse_lost_file(SQLite::Database& database);

/// The name by which SQLite opens the file, never taken for a URI.
[[nodiscard]] std::string sqlite_name(const std::filesystem::path& path);

/// A connection for reading alone. Throws UserError when the file is absent or no database of ours.
[[nodiscard]] std::unique_ptr<SQLite::Database> open_to_read(const std::filesystem::path& path);

/// A connection for the one writer, with an up-to-date schema, after proving that a write reaches the file.
[[nodiscard]] std::unique_ptr<SQLite::Database> open_to_write(const std::filesystem::path& path);

}  // namespace kvarena::results
