#pragma once
// The database's schema and the migration of older files to it.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace SQLite {
class Database;
}

namespace kvarena::results {

/// One numbered file of migrations/, never edited after it has landed. Files that exist were made by all of them.
struct Migration {
  int version;            // 1, 2, ...
  std::string_view name;  // "0001_initial"
  std::string_view sql;
};

/// The migrations built into this program, in order, without gaps.
[[nodiscard]] std::span<const Migration> migrations();

/// Marks our files (PRAGMA application_id): "kvar" in ASCII.
inline constexpr int64_t kApplicationId = 0x6b766172;

/// PRAGMA user_version of the file after checking that it is ours and not of a newer program; 0 = empty file.
/// Throws UserError naming `place`.
int checked_version(SQLite::Database& database, const std::string& place,
                    std::span<const Migration> known = migrations());

/// Applies what is missing, each migration in its own transaction together with its new user_version.
void migrate(SQLite::Database& database, const std::string& place, std::span<const Migration> known = migrations());

}  // namespace kvarena::results
