#include "server/database/database.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Migration kNotes{"notes", "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT) STRICT;"};

class DatabaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/db.sqlite";
  }

  std::unique_ptr<Database> Open(const std::vector<Migration>& migrations = {kNotes}) {
    absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path_, migrations);
    EXPECT_TRUE(database.ok()) << database.status();
    return *std::move(database);
  }

  static std::vector<std::string> Notes(Database& database) {
    std::vector<std::string> notes;
    EXPECT_TRUE(database
                    .Read([&notes](Connection& connection) {
                      return connection.Query("SELECT text FROM notes ORDER BY id", {},
                                              [&notes](const Row& row) {
                                                notes.push_back(row.Text(0));
                                                return absl::OkStatus();
                                              });
                    })
                    .ok());
    return notes;
  }

  static absl::Status Add(Database& database, int64_t id, const std::string& text) {
    return database.Write([&](Connection& connection) {
      return connection.Execute("INSERT INTO notes VALUES (?, ?)", {id, text});
    });
  }

  std::string folder_;
  std::string path_;
};

TEST_F(DatabaseTest, KeepsWhatWasWritten) {
  ASSERT_TRUE(Add(*Open(), 1, std::string("with\0zero", 9)).ok());
  EXPECT_THAT(Notes(*Open()), ElementsAre(std::string("with\0zero", 9)));
}

TEST_F(DatabaseTest, HasTheDurabilityItPromises) {
  const auto database = Open();
  for (const auto& [pragma, value] : std::map<std::string, std::string>{{"journal_mode", "wal"},
                                                                        {"synchronous", "2"},
                                                                        {"foreign_keys", "1"},
                                                                        {"busy_timeout", "5000"}}) {
    std::string found;
    ASSERT_TRUE(database
                    ->Read([&](Connection& connection) {
                      return connection.Query("PRAGMA " + pragma, {}, [&](const Row& row) {
                        found = row.Text(0);
                        return absl::OkStatus();
                      });
                    })
                    .ok());
    EXPECT_EQ(found, value) << pragma;
  }
}

TEST_F(DatabaseTest, AFailedWriteLeavesNothing) {
  const auto database = Open();
  const absl::Status status = database->Write([](Connection& connection) -> absl::Status {
    MT_RETURN_IF_ERROR(connection.Execute("INSERT INTO notes VALUES (1, 'a')"));
    return absl::CancelledError("stop");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Notes(*database).empty());
}

TEST_F(DatabaseTest, ErrorsHaveCodesAndTheStatement) {
  const auto database = Open();
  ASSERT_TRUE(Add(*database, 1, "a").ok());
  EXPECT_EQ(Add(*database, 1, "b").code(), absl::StatusCode::kAlreadyExists);
  const absl::Status wrong = database->Write(
      [](Connection& connection) { return connection.Execute("INSERT INTO nothing VALUES (1)"); });
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("INSERT INTO nothing"));
  const absl::Status text_for_int = database->Write([](Connection& connection) {
    return connection.Execute("INSERT INTO notes VALUES ('x', 'x')");
  });
  EXPECT_FALSE(text_for_int.ok());
}

TEST_F(DatabaseTest, AFullDiskIsResourceExhaustedAndWorkGoesOnAfterwards) {
  const auto database = Open();
  const auto set_limit = [&](const std::string& pages) {
    return database->Write([&](Connection& connection) {
      return connection.ExecuteScript("PRAGMA max_page_count = " + pages);
    });
  };
  ASSERT_TRUE(set_limit("4").ok());
  EXPECT_EQ(Add(*database, 1, std::string(1 << 20, 'x')).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Notes(*database).empty());
  ASSERT_TRUE(set_limit("100000").ok());
  EXPECT_TRUE(Add(*database, 1, "small").ok());
  EXPECT_THAT(Notes(*database), ElementsAre("small"));
}

TEST_F(DatabaseTest, MigratesWithACopyAndRefusesANewerFile) {
  ASSERT_TRUE(Add(*Open(), 1, "a").ok());
  const Migration more{"more", "ALTER TABLE notes ADD COLUMN more TEXT;"};
  EXPECT_THAT(Notes(*Open({kNotes, more})), ElementsAre("a"));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".before-2"));
  const auto newer = Database::Open(path_, {kNotes});
  EXPECT_EQ(newer.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(newer.status().message()), HasSubstr("newer program"));
}

// A death within the copy, and a copy of an earlier time, keep nobody from opening the file.
TEST_F(DatabaseTest, WhatAnEarlierMigrationLeftIsReplaced) {
  ASSERT_TRUE(Add(*Open(), 1, "a").ok());
  const std::string copy = path_ + ".before-2";
  std::ofstream(copy) << "of another time";
  std::ofstream(copy + ".partial") << "half";
  const Migration more{"more", "ALTER TABLE notes ADD COLUMN more TEXT;"};
  EXPECT_THAT(Notes(*Open({kNotes, more})), ElementsAre("a"));
  EXPECT_FALSE(std::filesystem::exists(copy + ".partial"));
  std::filesystem::rename(copy, path_ + ".old");
  const auto old = Database::Open(path_ + ".old", {kNotes});
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_THAT(Notes(**old), ElementsAre("a"));
}

TEST_F(DatabaseTest, AFailedMigrationChangesNothing) {
  ASSERT_TRUE(Add(*Open(), 1, "a").ok());
  const Migration broken{"broken", "CREATE TABLE other (id INTEGER) STRICT; SELECT nonsense;"};
  const auto failed = Database::Open(path_, {kNotes, broken});
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("migration broken"));
  EXPECT_THAT(Notes(*Open()), ElementsAre("a"));
}

TEST_F(DatabaseTest, AFileThatIsNoDatabaseIsDataLoss) {
  std::ofstream(path_) << std::string(4096, 'x');
  EXPECT_EQ(Database::Open(path_, {kNotes}).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(DatabaseTest, AcknowledgedWritesSurviveAKill) {
  int acknowledged[2];
  ASSERT_EQ(pipe(acknowledged), 0);
  ASSERT_TRUE(Open() != nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const auto database = Database::Open(path_, {kNotes});
    for (int64_t id = 1;; ++id) {
      if (!database.ok() || !Add(**database, id, "x").ok()) {
        _exit(1);
      }
      if (write(acknowledged[1], "x", 1) != 1) {
        _exit(1);
      }
    }
  }
  char byte = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(read(acknowledged[0], &byte, 1), 1);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(acknowledged[1]);
  size_t count = 20;
  while (read(acknowledged[0], &byte, 1) == 1) {
    ++count;
  }
  close(acknowledged[0]);
  EXPECT_GE(Notes(*Open()).size(), count);
}

TEST_F(DatabaseTest, ReadersAndWritersShareIt) {
  const auto database = Open();
  std::thread writer([&] {
    for (int64_t id = 0; id < 100; ++id) {
      ASSERT_TRUE(Add(*database, id, "x").ok());
    }
  });
  size_t seen = 0;
  while (seen < 100) {
    const size_t now = Notes(*database).size();
    EXPECT_GE(now, seen);
    seen = now;
  }
  writer.join();
}

}  // namespace
}  // namespace megatrain
