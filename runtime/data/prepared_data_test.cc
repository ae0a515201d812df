#include "runtime/data/prepared_data.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/data/prepared_data_for_test.h"

namespace megatrain {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Replaces a shard and makes the manifest agree with it in size and checksum.
void ReplaceShard(const std::string& folder, const std::string& name, const std::string& bytes) {
  WriteText(folder + "/" + name, bytes);
  nlohmann::json manifest = nlohmann::json::parse(ReadText(folder + "/manifest.json"));
  manifest["files"][name] = {{"size_bytes", bytes.size()}, {"sha256", HexSha256(bytes)}};
  WriteText(folder + "/manifest.json", manifest.dump());
}

absl::Status OpenStatus(const std::string& folder) { return PreparedData::Open(folder).status(); }

void ExpectError(const std::string& folder, absl::StatusCode code, const std::string& part) {
  const absl::Status status = OpenStatus(folder);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(std::string(status.message()).find(part), std::string::npos)
      << status << " does not say \"" << part << "\"";
}

class PreparedDataTest : public testing::Test {
 protected:
  std::string Folder() {
    return WritePreparedData(
        std::string("data_") + testing::UnitTest::GetInstance()->current_test_info()->name(),
        rows_);
  }

  const std::vector<RowForTest> rows_ = RandomRows(40, 9, 100, 1);
};

TEST_F(PreparedDataTest, GivesBackWhatWasWritten) {
  absl::StatusOr<std::unique_ptr<PreparedData>> data = PreparedData::Open(Folder());
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ((*data)->info().row_count, 40);
  EXPECT_LT((*data)->info().largest_token, 100);
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
  for (const int64_t row : {39, 0, 7}) {
    ASSERT_TRUE((*data)->ReadRow(row, tokens, trained).ok());
    EXPECT_EQ(tokens, rows_[row].tokens);
    EXPECT_EQ(trained, rows_[row].trained);
  }
}

TEST_F(PreparedDataTest, RowsLongerThanAPieceOfReading) {
  const std::vector<RowForTest> rows = RandomRows(300, 9000, 100, 2);
  absl::StatusOr<std::unique_ptr<PreparedData>> data =
      PreparedData::Open(WritePreparedData("data_large", rows));
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_GT((*data)->info().token_count, 1 << 20);
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
  ASSERT_TRUE((*data)->ReadRow(299, tokens, trained).ok());
  EXPECT_EQ(tokens, rows[299].tokens);
}

TEST_F(PreparedDataTest, AbsentFolderAndAbsentFileAreNamed) {
  ExpectError("/no/such/folder", absl::StatusCode::kNotFound, "/no/such/folder/manifest.json");
  const std::string folder = Folder();
  std::filesystem::remove(folder + "/trained.bin");
  ExpectError(folder, absl::StatusCode::kNotFound, folder + "/trained.bin");
}

TEST_F(PreparedDataTest, ATruncatedShardIsNamedWithBothSizes) {
  const std::string folder = Folder();
  std::filesystem::resize_file(folder + "/tokens.bin", 8);
  ExpectError(folder, absl::StatusCode::kInvalidArgument, "tokens.bin: has 8 bytes");
}

TEST_F(PreparedDataTest, AFlippedByteOfAnyShardIsNoticed) {
  for (const std::string name : {"tokens.bin", "trained.bin", "rows.bin"}) {
    const std::string folder = Folder();
    std::string bytes = ReadText(folder + "/" + name);
    bytes[bytes.size() - 2] ^= 1;
    WriteText(folder + "/" + name, bytes);
    EXPECT_FALSE(OpenStatus(folder).ok()) << name;
    EXPECT_NE(std::string(OpenStatus(folder).message()).find(name), std::string::npos) << name;
  }
}

TEST_F(PreparedDataTest, WrongContentsWithARightChecksumAreNoticed) {
  std::string folder = Folder();
  std::string tokens = ReadText(folder + "/tokens.bin");
  tokens[3] = '\xff';
  ReplaceShard(folder, "tokens.bin", tokens);
  ExpectError(folder, absl::StatusCode::kInvalidArgument, "negative token");

  folder = Folder();
  std::string trained = ReadText(folder + "/trained.bin");
  trained[0] = 1;
  ReplaceShard(folder, "trained.bin", trained);
  ExpectError(folder, absl::StatusCode::kInvalidArgument, "row 0 has a mark");

  folder = Folder();
  trained = ReadText(folder + "/trained.bin");
  std::fill(trained.begin(), trained.begin() + static_cast<int64_t>(rows_[0].tokens.size()), 0);
  ReplaceShard(folder, "trained.bin", trained);
  ExpectError(folder, absl::StatusCode::kInvalidArgument, "row 0 has no trained token");

  folder = Folder();
  std::string offsets = ReadText(folder + "/rows.bin");
  offsets[8 + 7] = '\x80';  // the second offset becomes negative
  ReplaceShard(folder, "rows.bin", offsets);
  ExpectError(folder, absl::StatusCode::kInvalidArgument, "rows.bin: row 0");
}

TEST_F(PreparedDataTest, ManifestsThatDoNotFitAreRefusedByKey) {
  const std::string folder = Folder();
  const nlohmann::json good = nlohmann::json::parse(ReadText(folder + "/manifest.json"));
  const auto with = [&](const nlohmann::json::json_pointer& key, const nlohmann::json& value) {
    nlohmann::json changed = good;
    changed[key] = value;
    WriteText(folder + "/manifest.json", changed.dump());
    return OpenStatus(folder);
  };
  using Pointer = nlohmann::json::json_pointer;
  EXPECT_EQ(with(Pointer("/format"), 2).code(), absl::StatusCode::kUnimplemented);
  const std::vector<std::pair<std::string, nlohmann::json>> wrong = {
      {"/row_count", 41},           {"/row_count", -1},
      {"/row_count", "x"},          {"/row_count", uint64_t{1} << 63},
      {"/token_count", 3},          {"/trained_token_count", 1},
      {"/longest_row_tokens", 4},   {"/fingerprint", "abc"},
      {"/files", nlohmann::json()}, {"/files/rows.bin", nlohmann::json()},
      {"/files/rows.bin/sha256", 5}};
  for (const auto& [key, value] : wrong) {
    const absl::Status status = with(Pointer(key), value);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key << " " << value << status;
  }
  for (const std::string text : {"", "[]", "{", "nul", "{\"format\": 1}"}) {
    WriteText(folder + "/manifest.json", text);
    ExpectError(folder, absl::StatusCode::kInvalidArgument, "manifest.json");
  }
}

TEST_F(PreparedDataTest, ADataSetWithoutRowsIsRefused) {
  ExpectError(WritePreparedData("data_empty", {}), absl::StatusCode::kInvalidArgument,
              "row_count is 0, no integer from 1");
}

}  // namespace
}  // namespace megatrain
