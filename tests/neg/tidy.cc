namespace megatrain {

int badly_named(int Value) {
  int Copy = Value;
  return Copy;
}

}  // namespace megatrain
