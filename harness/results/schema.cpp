#include "harness/results/schema.h"

#include <fmt/format.h>

#include "harness/core/error.h"
#include "harness/results/database.h"

namespace kvarena::results {

int checked_version(SQLite::Database& database, const std::string& place, std::span<const Migration> known) {
  return checked(place, "read its version", [&] {
    const auto tables = database.execAndGet("SELECT count(*) FROM sqlite_schema").getInt64();
    const auto id = database.execAndGet("PRAGMA application_id").getInt64();
    if (tables > 0 && id != kApplicationId) {
      fail({.place = place,
            .found = "a database of another program",
            .expected = "a kvarena results database",
            .action = "choose another output.database"});
    }
    const int version = database.execAndGet("PRAGMA user_version").getInt();
    if (version > known.back().version) {
      fail({.place = place,
            .found = fmt::format("results in format {}, made by a newer kvarena", version),
            .expected = fmt::format("at most format {}", known.back().version),
            .action = "update kvarena or choose another output.database"});
    }
    return version;
  });
}

void migrate(SQLite::Database& database, const std::string& place, std::span<const Migration> known) {
  const int present = checked_version(database, place, known);
  for (const Migration& migration : known) {
    if (migration.version <= present) continue;
    checked(place, fmt::format("apply migration {}", migration.name), [&] {
      SQLite::Transaction transaction(database, SQLite::TransactionBehavior::EXCLUSIVE);
      database.exec(std::string(migration.sql));
      database.exec(fmt::format("PRAGMA application_id = {}", kApplicationId));
      database.exec(fmt::format("PRAGMA user_version = {}", migration.version));
      transaction.commit();
    });
  }
}

}  // namespace kvarena::results
