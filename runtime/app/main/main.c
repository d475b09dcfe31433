/* main.c - the program `modchip`. Everything is in runtime/app, so that tests can link it. */
#include "runtime/app/app.h"

int main(int argc, char **argv)
{
    return app_main(argc, argv);
}
