#include "server/models/allowed_paths.h"

#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/errors/errors.h"

namespace megatrain {
namespace {

TEST(AllowedPathsTest, TakesOnlyWhatLiesBelowAfterLinksAreFollowed) {
  const std::string folder =
      std::filesystem::canonical(::testing::TempDir()).string() + "/allowed_paths";
  std::filesystem::create_directories(folder + "/allowed/model");
  std::filesystem::create_directories(folder + "/allowed-not");
  std::filesystem::create_symlink(folder + "/allowed-not", folder + "/allowed/out");
  std::filesystem::create_symlink(folder + "/allowed/model", folder + "/in");
  std::filesystem::create_symlink(folder + "/allowed/loop", folder + "/allowed/loop");
  std::filesystem::create_symlink(folder + "/allowed", folder + "/root");
  const AllowedPaths paths({folder + "/root/"});

  EXPECT_EQ(*paths.Resolve(folder + "/allowed/model"), folder + "/allowed/model");
  EXPECT_EQ(*paths.Resolve(folder + "/allowed/model/"), folder + "/allowed/model");
  EXPECT_EQ(*paths.Resolve(folder + "/in/new/name"), folder + "/allowed/model/new/name");
  EXPECT_EQ(*paths.Resolve(folder + "/allowed/x/../y"), folder + "/allowed/y");
  for (const char* path : {"/allowed-not", "/allowed-not/absent", "/allowed/out", "/allowed/out/x",
                           "/allowed/..", "/allowed/x/../../etc", "/allowed/loop", ""}) {
    EXPECT_EQ(ReasonOf(paths.Resolve(folder + path).status()), "PATH_NOT_ALLOWED") << path;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(paths.Resolve("allowed/model").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(paths.Resolve("").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(AllowedPaths({}).Resolve("/tmp").status()));
  EXPECT_TRUE(AllowedPaths({"/"}).Resolve(folder).ok());
}

}  // namespace
}  // namespace megatrain
