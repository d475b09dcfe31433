/* Settings that change while tokens are computed: every token is computed with one set of them, all layers and threads, and the
 * next token after a change has the new ones. */
#include "runtime/control/settings.h"
#include "tests/support/engine_fixture.h"

#include "platform/base/bytes.h"
#include "platform/os.h"

#include <stdatomic.h>

enum { PROMPT = 20, ROUNDS = 300 };

static struct engine *engine;
static struct moe_settings sets[2];
static _Atomic uint32_t finish;

static void change_all_the_time(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; !atomic_load(&finish); i++)
        (void)settings_box_set(engine_settings(engine), &sets[i % 2], SETTINGS_SOCKET, 0);
}

static void decode(struct session *s, int32_t id)
{
    struct mc_err err = {0};
    fixture_rewind(s, PROMPT);
    if (session_decode(s, id, &err)) fail_msg("%s", err.msg);
}

static void a_token_is_never_computed_by_halves(void **state)
{
    (void)state;
    struct mc_err err = {0};
    engine = fixture_engine("tiny", ENGINE_FAST, "auto", 2);
    const uint32_t n_vocab = engine_shape(engine)->n_vocab;
    const size_t bytes = n_vocab * sizeof(float);
    int32_t *ids = fixture_tokens(PROMPT + 1, n_vocab, 3);
    struct session *s = fixture_session(engine, 64, 64, KERN_KV_F16);
    float *want[2];
    fixture_append(s, ids, PROMPT);
    for (int i = 0; i < 2; i++) {
        sets[i] = settings_lossless(settings_box_limits(engine_settings(engine)));
        sets[i].top_k = sets[i].inner_k = i ? 2 : 4;
        sets[i].rows_exps = sets[i].rows_shexp = i ? 40 : 96;
        (void)settings_box_set(engine_settings(engine), &sets[i], SETTINGS_SOCKET, 0);
        decode(s, ids[PROMPT]); /* the next token after a change has it */
        want[i] = malloc(bytes);
        memcpy(want[i], session_logits(s), bytes);
    }
    assert_memory_not_equal(want[0], want[1], bytes);

    struct os_thread *writer;
    unsigned seen[2] = {0, 0};
    if (os_thread_start(change_all_the_time, NULL, "writer", &writer, &err)) fail_msg("%s", err.msg);
    for (int round = 0; round < ROUNDS; round++) {
        decode(s, ids[PROMPT]);
        const int which = !memcmp(session_logits(s), want[0], bytes) ? 0 : 1;
        if (memcmp(session_logits(s), want[which], bytes) != 0) fail_msg("round %d: neither the one nor the other", round);
        seen[which]++;
    }
    atomic_store(&finish, 1);
    os_thread_join(writer);
    printf("%u tokens with the one, %u with the other\n", seen[0], seen[1]);
    for (int i = 0; i < 2; i++) free(want[i]);
    session_destroy(s);
    engine_close(engine);
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_token_is_never_computed_by_halves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
