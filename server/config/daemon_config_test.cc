#include "server/config/daemon_config.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "megatraind");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

std::string WriteFile(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                           ".yaml";
  std::ofstream(path) << text;
  return path;
}

std::string ErrorOf(const absl::StatusOr<CommandLine>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

TEST(DaemonConfigTest, AFlagWinsOverTheFileAndTheFileOverTheDefault) {
  const std::string file = WriteFile(
      "state_dir: /var/lib/megatrain\nmax_row_bytes: 4096\nallow_path: [/a, /b]\nlisten: "
      "127.0.0.1:1\n");
  const auto result = Parse({"--config", file.c_str(), "--listen", "127.0.0.1:0"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->config.state_dir, "/var/lib/megatrain");
  EXPECT_EQ(result->config.max_row_bytes, 4096);
  EXPECT_EQ(result->config.listen, "127.0.0.1:0");
  EXPECT_EQ(result->config.python, "/usr/bin/python3");
  EXPECT_THAT(result->config.allow_path, ElementsAre("/a", "/b"));
}

TEST(DaemonConfigTest, ARepeatableFlagCollects) {
  const auto result = Parse({"--state-dir", "/s", "--allow-path", "/a", "--allow-path=/b"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->config.allow_path, ElementsAre("/a", "/b"));
}

TEST(DaemonConfigTest, UnknownNamesComeWithTheNearestKnownOnes) {
  EXPECT_THAT(ErrorOf(Parse({"--state-dri", "/s"})),
              HasSubstr("unknown --state-dri (did you mean --state-dir?)"));
  const std::string file = WriteFile("state_dir: /s\nlissten: x\nmax_row_byte: 1\n");
  EXPECT_THAT(ErrorOf(Parse({"--config", file.c_str()})),
              AllOf(HasSubstr("line 2: unknown lissten (did you mean listen?)"),
                    HasSubstr("line 3: unknown max_row_byte (did you mean max_row_bytes?)")));
}

TEST(DaemonConfigTest, OnlyLoopbackIsServedWithoutTls) {
  for (const char* address : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.0.0.1", "example.org:1",
                              "127.0.0.1:70000", "127.evil.example.org:1"}) {
    EXPECT_THAT(ErrorOf(Parse({"--state-dir", "/s", "--listen", address})), HasSubstr("loopback"))
        << address;
    EXPECT_THAT(ErrorOf(Parse({"--state-dir", "/s", "--metrics-listen", address})),
                HasSubstr("loopback"));
  }
  for (const char* address : {"127.0.0.1:0", "127.0.0.2:7443", "[::1]:1", "localhost:1"}) {
    EXPECT_TRUE(Parse({"--state-dir", "/s", "--listen", address}).ok()) << address;
  }
}

TEST(DaemonConfigTest, WrongValuesAreNamedByTheirFlag) {
  EXPECT_THAT(ErrorOf(Parse({})), HasSubstr("--state-dir: an absolute path"));
  EXPECT_THAT(ErrorOf(Parse({"--state-dir", "relative"})), HasSubstr("--state-dir"));
  EXPECT_THAT(ErrorOf(Parse({"--state-dir", "/s", "--max-row-bytes", "many"})),
              HasSubstr("--max-row-bytes: \"many\""));
  EXPECT_THAT(ErrorOf(Parse({"--state-dir", "/s", "--backend", "tpu"})), HasSubstr("--backend"));
  EXPECT_THAT(ErrorOf(Parse({"--state-dir", "/s", "--allow-path", "x"})),
              HasSubstr("--allow-path"));
  const std::string long_path = "/" + std::string(100, 'x');
  EXPECT_THAT(ErrorOf(Parse({"--state-dir", long_path.c_str()})), HasSubstr("too long"));
}

TEST(DaemonConfigTest, AFileThatCannotBeReadIsAnError) {
  EXPECT_THAT(ErrorOf(Parse({"--config", "/nowhere.yaml"})), HasSubstr("/nowhere.yaml"));
  const std::string file = WriteFile("state_dir: [unclosed\n");
  EXPECT_THAT(ErrorOf(Parse({"--config", file.c_str()})), HasSubstr(file));
  const std::string list = WriteFile("- a\n- b\n");
  EXPECT_THAT(ErrorOf(Parse({"--config", list.c_str()})), HasSubstr("key: value"));
}

TEST(DaemonConfigTest, HelpNamesEveryFlag) {
  EXPECT_THAT(*Parse({"--help"})->text, AllOf(HasSubstr("--state-dir"), HasSubstr("--config")));
  EXPECT_THAT(*Parse({"--version"})->text, HasSubstr("megatraind "));
}

}  // namespace
}  // namespace megatrain
