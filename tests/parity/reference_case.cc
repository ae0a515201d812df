#include "tests/parity/reference_case.h"

#include <cstdlib>
#include <span>

#include "absl/strings/str_cat.h"
#include "runtime/base/posix_file_system.h"
#include "runtime/base/status_macros.h"

namespace megatrain {
namespace {

constexpr int64_t kMaxJsonBytes = 16 << 20;

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path, FileSystem& file_system) {
  MT_ASSIGN_OR_RETURN(const std::string text, file_system.ReadFile(path, kMaxJsonBytes));
  return nlohmann::json::parse(text);
}

}  // namespace

bool RunPython(const std::string& script_and_arguments) {
  const char* packages =
      std::getenv("MEGATRAIN_DEPS");  // NOLINT(concurrency-mt-unsafe): nobody sets any
  if (packages == nullptr) {
    return false;
  }
  const std::string command = absl::StrCat("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='", packages,
                                           "' /usr/bin/python3 ", script_and_arguments);
  return std::system(command.c_str()) == 0;
}

absl::StatusOr<std::unique_ptr<ReferenceCase>> ReferenceCase::Open(const std::string& folder) {
  PosixFileSystem file_system;
  auto result = std::make_unique<ReferenceCase>();
  MT_ASSIGN_OR_RETURN(result->model_, ModelFolder::Open(folder + "/model", file_system));
  MT_ASSIGN_OR_RETURN(result->expected_, ReadJson(folder + "/expected.json", file_system));
  MT_ASSIGN_OR_RETURN(const nlohmann::json data, ReadJson(folder + "/data.json", file_system));
  for (const auto& step : data) {
    std::vector<Document> documents;
    for (const auto& document : step) {
      documents.push_back({.tokens = document.at("tokens").get<std::vector<int32_t>>(),
                           .trained = document.at("trained").get<std::vector<int32_t>>()});
    }
    result->steps_.push_back(std::move(documents));
  }
  MT_ASSIGN_OR_RETURN(result->tensors_, SafetensorsFile::Open(folder + "/expected.safetensors"));
  return result;
}

absl::StatusOr<std::vector<double>> ReferenceCase::Tensor(const std::string& name) const {
  for (const TensorEntry& tensor : tensors_->header().tensors) {
    if (tensor.name == name) {
      std::vector<float> elements(tensor.element_count());
      const std::span<float> all(elements);
      MT_RETURN_IF_ERROR(
          tensors_->Read(tensor, 0, {reinterpret_cast<char*>(all.data()), all.size_bytes()}));
      return std::vector<double>(elements.begin(), elements.end());
    }
  }
  return absl::NotFoundError(absl::StrCat("no tensor ", name, " in the reference"));
}

}  // namespace megatrain
