/* replay_main.c - gives each file of a corpus to a fuzz target once, so that what the fuzzer found stays a test in every build,
 * with any compiler.
 *
 * Usage: replay LIST, where each line of LIST is the path of a file (a list, because command lines are short on Windows). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The copy is exactly as long as the file: sanitizers see an over-read. */
static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) return 0;
    const long size = ftell(f);
    rewind(f);
    uint8_t *data = size >= 0 ? malloc(size ? (size_t)size : 1) : NULL;
    const int ok = data && fread(data, 1, (size_t)size, f) == (size_t)size;
    fclose(f);
    if (ok) LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return ok;
}

int main(int argc, char **argv)
{
    char path[4096];
    unsigned n = 0;
    FILE *list = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (!list) {
        fprintf(stderr, "usage: replay LIST, a readable file with one path a line\n");
        return 2;
    }
    while (fgets(path, sizeof path, list)) {
        path[strcspn(path, "\r\n")] = 0;
        if (!*path) continue;
        printf("%s\n", path);
        fflush(stdout); /* the last line names the file that crashed */
        if (!replay(path)) {
            fprintf(stderr, "%s: cannot be read\n", path);
            return 1;
        }
        n++;
    }
    fclose(list);
    printf("%u files replayed\n", n);
    if (!n) fprintf(stderr, "%s: the corpus is empty\n", argv[1]);
    return n ? 0 : 1;
}
