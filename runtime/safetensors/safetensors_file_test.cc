#include "runtime/safetensors/safetensors_file.h"

#include <sys/stat.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/faulty_file_system.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/safetensors/safetensors_writer.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string TempPath(const std::string& name) { return ::testing::TempDir() + "/" + name; }

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

SafetensorsHeader TwoTensors() {
  return {.tensors = {{.name = "first",
                       .dtype = TensorDtype::kF32,
                       .shape = {3},
                       .offset_bytes = 0,
                       .size_bytes = 12},
                      {.name = "second",
                       .dtype = TensorDtype::kU8,
                       .shape = {5, 1},
                       .offset_bytes = 12,
                       .size_bytes = 5}},
          .metadata = {}};
}

constexpr char kData[] = "abcdefghijklMNOPQ";

std::string WriteTwoTensors(const std::string& name) {
  PosixFileSystem file_system;
  const std::string path = TempPath(name);
  auto writer = SafetensorsWriter::Create(path, TwoTensors(), file_system);
  EXPECT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE((*writer)->Append({kData, 7}).ok());
  EXPECT_TRUE((*writer)->Append({kData + 7, 10}).ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  return path;
}

std::string ContentsOf(const std::string& path) {
  PosixFileSystem file_system;
  return *file_system.ReadFile(path, 1 << 20);
}

TEST(SafetensorsFileTest, ReadsWhatTheWriterWrote) {
  auto file = SafetensorsFile::Open(WriteTwoTensors("two.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->header().metadata.at("format"), "pt");
  ASSERT_EQ((*file)->header().tensors.size(), 2u);
  const TensorEntry& second = (*file)->header().tensors[1];
  std::vector<char> bytes(3);
  ASSERT_TRUE((*file)->Read(second, 1, bytes).ok());
  EXPECT_EQ(std::string(bytes.data(), bytes.size()), "NOP");
}

TEST(SafetensorsFileTest, EveryCutIsAnErrorThatNamesFileAndSizes) {
  const std::string good = ContentsOf(WriteTwoTensors("good.safetensors"));
  const std::string path = TempPath("cut.safetensors");
  for (size_t length = 0; length < good.size(); ++length) {
    WriteBytes(path, good.substr(0, length));
    auto file = SafetensorsFile::Open(path);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << length;
    EXPECT_THAT(std::string(file.status().message()),
                AllOf(HasSubstr(path), HasSubstr(std::to_string(length))));
  }
  WriteBytes(path, good.substr(0, good.size() - 1));
  EXPECT_THAT(std::string(SafetensorsFile::Open(path).status().message()),
              HasSubstr(std::to_string(good.size()) + " bytes expected"));
  WriteBytes(path, good + "x");
  EXPECT_THAT(std::string(SafetensorsFile::Open(path).status().message()),
              HasSubstr("1 bytes after its last tensor"));
}

TEST(SafetensorsFileTest, APromiseOfTooManyBytesIsAnError) {
  const std::string text =
      R"({"w":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}})";
  WriteBytes(TempPath("huge"),
             std::string(1, static_cast<char>(text.size())) + std::string(7, '\0') + text);
  EXPECT_EQ(SafetensorsFile::Open(TempPath("huge")).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SafetensorsFileTest, FlippedBitsNeverCrash) {
  const std::string good = ContentsOf(WriteTwoTensors("flip.safetensors"));
  const std::string path = TempPath("flipped.safetensors");
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string damaged = good;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WriteBytes(path, damaged);
    auto file = SafetensorsFile::Open(path);
    if (!file.ok()) {
      continue;
    }
    for (const TensorEntry& tensor : (*file)->header().tensors) {
      std::vector<char> bytes(tensor.size_bytes);
      EXPECT_TRUE((*file)->Read(tensor, 0, bytes).ok());
    }
  }
}

TEST(SafetensorsFileTest, AFileThatShrinksAfterwardsIsAnError) {
  const std::string path = WriteTwoTensors("shrinks.safetensors");
  auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  PosixFileSystem file_system;
  ASSERT_TRUE(file_system.Truncate(path, 8).ok());
  std::vector<char> bytes(5);
  const absl::Status status = (*file)->Read((*file)->header().tensors[1], 0, bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("\"second\"")));
}

TEST(SafetensorsFileTest, WhatIsNoRegularFileIsRefused) {
  EXPECT_EQ(SafetensorsFile::Open(TempPath("absent")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(::testing::TempDir()).status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::string pipe = TempPath("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsFile::Open(pipe).status().code(), absl::StatusCode::kInvalidArgument);
  WriteBytes(TempPath("pickle"),
             std::string("\x80\x02}q\x00(X\x0a\x00", 10) + std::string(99, 'x'));
  EXPECT_THAT(std::string(SafetensorsFile::Open(TempPath("pickle")).status().message()),
              HasSubstr("no safetensors file"));
}

TEST(SafetensorsWriterTest, AFullDiskIsAnError) {
  PosixFileSystem posix;
  const int64_t size_bytes =
      static_cast<int64_t>(ContentsOf(WriteTwoTensors("whole.safetensors")).size());
  for (int64_t room = 0; room < size_bytes; room += 13) {
    FaultyFileSystem disk(&posix);
    disk.FillAfter(room);
    auto writer = SafetensorsWriter::Create(TempPath("full.safetensors"), TwoTensors(), disk);
    absl::Status status = writer.status();
    if (writer.ok()) {
      status = (*writer)->Append({kData, 17});
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << room;
  }
}

}  // namespace
}  // namespace megatrain
