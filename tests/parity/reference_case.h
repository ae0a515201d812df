#ifndef TESTS_PARITY_REFERENCE_CASE_H_
#define TESTS_PARITY_REFERENCE_CASE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "runtime/model_io/model_folder.h"
#include "runtime/safetensors/safetensors_file.h"
#include "tests/parity/documents.h"

namespace megatrain {

// Runs a Python script of this folder with the pinned wheels; what it prints goes to the test's
// log. False when it failed or the wheels are not there.
bool RunPython(const std::string& script_and_arguments);

// One model that reference.py has trained.
class ReferenceCase {
 public:
  static absl::StatusOr<std::unique_ptr<ReferenceCase>> Open(const std::string& folder);

  const ModelFolder& model() const { return *model_; }
  const std::vector<std::vector<Document>>& steps() const { return steps_; }
  // losses, norms, learning_rate, max_gradient_norm, inverse_frequencies.
  const nlohmann::json& expected() const { return expected_; }

  // Such as "gradient/model.norm.weight".
  absl::StatusOr<std::vector<double>> Tensor(const std::string& name) const;

 private:
  std::unique_ptr<ModelFolder> model_;
  std::vector<std::vector<Document>> steps_;
  nlohmann::json expected_;
  std::unique_ptr<SafetensorsFile> tensors_;
};

}  // namespace megatrain

#endif  // TESTS_PARITY_REFERENCE_CASE_H_
